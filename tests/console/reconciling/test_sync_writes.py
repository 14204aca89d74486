"""Recurring tasks that find no difference write no row per mirror or topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.models import Cluster, ClusterLink, LinkTask, MirrorTopic, SourceTopic
from console.reconciling.due_tasks import begin_task_run, finish_task_run
from console.workflows import syncs
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskName, TaskOutcome
from linkengine.domain.mirrorjobs import MirrorSync, MirrorSynced
from linkengine.domain.plans import TopicDescription
from tests.console.conftest import NOW, MakeMirror

CONFIGS = {"cleanup.policy": "compact", "retention.ms": "-1"}
UNCHANGED = MirrorSynced(partitions=1, source_partitions=1, source_configs=CONFIGS)
LATER = NOW + timedelta(minutes=5)


class Clusters:
    """The results of both clusters by mirror topic, and the batches that were requested."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.results: dict[str, MirrorSynced | LinkEngineError] = {}
        self.failure: LinkEngineError | None = None

    def sync_mirrors(
        self, wanted: Sequence[MirrorSync], *, still_mirrors: Callable[[str], bool]
    ) -> list[MirrorSynced | LinkEngineError]:
        """Return a result per mirror, in order, as ``jobs.sync_mirrors`` does."""
        self.batches.append([sync.mirror_topic for sync in wanted])
        if self.failure is not None:
            raise self.failure
        return [self.results.get(sync.mirror_topic, UNCHANGED) for sync in wanted]


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch, make_mirror: MakeMirror) -> Clusters:
    """Return the results of both clusters for four mirrors that are equal to their sources."""
    for name in "abcd":
        make_mirror(name, partitions=1, source_configs=CONFIGS, was_compacted=True)
    found = Clusters()
    monkeypatch.setattr(jobs, "sync_mirrors", found.sync_mirrors)
    return found


def writes(queries: CaptureQueriesContext) -> list[str]:
    """Return kind and table of each statement that writes rows."""
    places = {"INSERT": 2, "UPDATE": 1, "DELETE": 2}
    statements = [query["sql"].replace('"', "").split() for query in queries]
    return [f"{words[0]} {words[places[words[0]]]}" for words in statements if words[0] in places]


def sync(link: ClusterLink) -> list[str]:
    """Run TopicConfigsSync; return what it wrote."""
    with CaptureQueriesContext(connection) as queries:
        run(link)
    return writes(queries)


def run(link: ClusterLink) -> TaskOutcome:
    return syncs.follow_topics(ClusterLink.objects.select_related("destination", "source").get(pk=link.pk))


def test_config_sync_without_differences_writes_no_row(link: ClusterLink, clusters: Clusters) -> None:
    assert sync(link) == []
    assert clusters.batches == [["a", "b", "c", "d"]]


def test_config_sync_writes_only_mirrors_whose_configs_changed(link: ClusterLink, clusters: Clusters) -> None:
    changed = {**CONFIGS, "max.message.bytes": "2000000"}
    clusters.results["b"] = replace(UNCHANGED, source_configs=changed)

    assert sync(link) == ["UPDATE console_mirrortopic"]
    assert MirrorTopic.objects.get(name="b").source_configs == changed
    assert sync(link) == []


def test_config_sync_shows_success_and_errors_in_the_row_of_the_task(link: ClusterLink, clusters: Clusters) -> None:
    def stored(outcome: TaskOutcome, *, minutes: int) -> LinkTask:
        now = NOW + timedelta(minutes=minutes)
        row = begin_task_run(link=link, name=TaskName.TOPIC_CONFIGS, mirrors=True, now=now)
        assert row is not None
        finish_task_run(row=row, outcome=outcome, now=now)
        return LinkTask.objects.get()

    succeeded = stored(run(link), minutes=0)
    clusters.results["c"] = LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "Grant DESCRIBE_CONFIGS.")
    failed = stored(run(link), minutes=10)

    assert (succeeded.succeeded_at, succeeded.failing_since, succeeded.error_count) == (NOW, None, 0)
    assert succeeded.summary.startswith("4 mirror topics compared")
    assert (failed.succeeded_at, failed.failing_since) == (NOW, NOW + timedelta(minutes=10))
    assert failed.errors == [{"code": "AUTHORIZATION_ERROR", "message": "c: Grant DESCRIBE_CONFIGS."}]


def test_config_sync_in_batches_writes_the_link_once_per_batch(
    link: ClusterLink, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncs, "MIRRORS_AT_ONCE", 2)

    assert sync(link) == ["UPDATE console_clusterlink"] * 2
    assert clusters.batches == [["a", "b"], ["c", "d"]]


def test_config_sync_starts_after_the_last_batch_of_a_run_that_was_out_of_time(
    link: ClusterLink, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncs, "MIRRORS_AT_ONCE", 3)
    monkeypatch.setattr(syncs, "RUN_S", -1.0)

    outcomes = [run(link) for _ in range(3)]

    assert [outcome.more for outcome in outcomes] == [True, True, True]
    assert clusters.batches == [["a", "b", "c"], ["a", "b", "d"], ["a", "c", "d"]]


def test_config_sync_starts_after_a_batch_that_failed(
    link: ClusterLink, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncs, "MIRRORS_AT_ONCE", 2)
    clusters.failure = LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response.")
    with pytest.raises(LinkEngineError):
        run(link)
    clusters.failure = None

    run(link)

    assert clusters.batches == [["a", "b"], ["c", "d"], ["a", "b"]]


def topic(name: str, *, partitions: int = 1) -> TopicDescription:
    return TopicDescription(name=name, topic_id=f"id-{name}", partitions=partitions, replication_factor=1, internal=False)


def test_a_list_of_topics_is_written_where_it_differs(link: ClusterLink, source: Cluster) -> None:
    SourceTopic.objects.store_listing([topic("a"), topic("b"), topic("c")], now=NOW, link=link)
    SourceTopic.objects.store_listing([topic("c")], now=NOW, cluster=source)

    with CaptureQueriesContext(connection) as same:
        SourceTopic.objects.store_listing([topic("a"), topic("b"), topic("c")], now=LATER, link=link)
    with CaptureQueriesContext(connection) as different:
        SourceTopic.objects.store_listing([topic("a"), topic("b", partitions=4), topic("d")], now=LATER, link=link)

    assert writes(same) == []
    assert writes(different) == ["INSERT console_sourcetopic", "DELETE console_sourcetopic"]
    rows = SourceTopic.objects.filter(link=link).values_list("name", "partitions", "seen_at")
    assert list(rows) == [("a", 1, NOW), ("b", 4, LATER), ("d", 1, LATER)]
    assert SourceTopic.objects.filter(cluster=source).values_list("name", flat=True).get() == "c"
