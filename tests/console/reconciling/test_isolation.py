"""A mirror that fails unexpectedly and steps of a link that fail do not keep the others from being reconciled."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from django.conf import settings as django_settings
from django.test import Client

from console.config import signing_keys
from console.http.metrics import prometheus_text
from console.models import ClusterLink, LinkSample, MirrorPartition, MirrorSample, MirrorTopic
from console.reconciling import due_tasks, plans
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from console.tasks.links import reconcile, reconcile_link
from console.workflows import leases, observing
from linkengine import jobs
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.plans import PartitionPhase, PartitionProgress, topic_ids_of
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, MirrorState
from tests.console.conftest import MakeMirror

pytestmark = pytest.mark.django_db(transaction=True)  # as in a worker: a failure must not end the others' transaction
Sent = list[tuple[str, dict[str, Any]]]
LABELS = '{cluster="destination-id",link="west-to-east"}'
BEYOND = 2**70  # no database can store it
GAP = Gap(OffsetRange(3, 5), GapReason.ABORTED)
BAD_GAP = Gap(OffsetRange(7, 9), GapReason.ABORTED, before_ms=BEYOND)


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str, sent: Sent, client: Client) -> None:
    client.get("/healthz")  # imports the URLconf, which takes seconds, before a test times the worker's silence
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/11"
    redis_client().flushdb()


@pytest.fixture
def mirrors(make_mirror: MakeMirror) -> list[MirrorTopic]:
    """Three mirrors that are copied; the second will fail."""
    return [make_mirror(name, partitions=1, source_topic_id="there", mirror_topic_id="here") for name in ("a", "bad", "c")]


def progress_of(mirror: MirrorTopic, **changes: Any) -> PartitionProgress:
    values = {"copy_run_id": "one", "phase": PartitionPhase.COPYING, "observed_at_ms": now_ms(), "generation": 1, **changes}
    return PartitionProgress(key=f"{plans.mirror_key(mirror)}/0", topic_ids=topic_ids_of("there", "here"), **values)


def now_ms() -> int:
    seconds, micros = redis_client().time()
    return int(seconds * 1000 + micros // 1000)


def report(link: ClusterLink, *progress: PartitionProgress) -> None:
    RedisProgress(django_settings.REDIS_URL, signing_keys.link_signer).report(plans.link_key(link), list(progress))


def figures() -> dict[str, float]:
    lines = prometheus_text().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def ends() -> dict[str, int | None]:
    return dict(MirrorPartition.objects.values_list("mirror__name", "mirror_end"))


def fail_ledger(mirror: MirrorTopic) -> PartitionProgress:
    return progress_of(mirror, mirror_end=20, source_end=20, gaps=(BAD_GAP,))


def fail_row(mirror: MirrorTopic) -> PartitionProgress:
    return progress_of(mirror, mirror_end=20, last_timestamp_ms=BEYOND)


@pytest.mark.parametrize("fail", [fail_ledger, fail_row], ids=["its ledger", "its row"])
def test_failure_of_a_mirror_is_reported_and_does_not_affect_the_others(
    client: Client, link: ClusterLink, mirrors: list[MirrorTopic], sent: Sent, fail: Callable[[MirrorTopic], PartitionProgress]
) -> None:
    first, bad, last = mirrors
    reconcile()
    report(link, progress_of(first, mirror_end=20, gaps=(GAP,)), fail(bad), progress_of(last, mirror_end=20, gaps=(GAP,)))

    with structlog.testing.capture_logs() as logs:
        reconcile_link(link_id=link.pk)

    assert ends() == {"a": 20, "bad": 10, "c": 20}
    assert [mirror.gaps.count() for mirror in (first, last)] == [1, 1]
    (logged,) = [line for line in logs if line["event"] == "reconcile.mirror_failed"]
    assert (logged["mirror_id"], logged["exc_info"].__traceback__ is not None) == (bad.pk, True)
    response = client.get("/readyz")
    assert (response.status_code, response.json()["parts"]["links"]) == (200, "ok")
    assert re.match(
        r"1 mirror topic not reconciled, while others are: west-to-east/bad \(fails with \w+Error\)",
        response.json()["parts"]["mirrors"],
    )
    shown = figures()
    assert shown[f"clusterlink_mirrors_not_looked_after{LABELS}"] == 1
    assert shown[f"clusterlink_mirror_round_failures_total{LABELS}"] == 1
    assert shown[f"clusterlink_link_round_failures_total{LABELS}"] == 0


def test_mirror_that_succeeds_again_is_no_longer_reported(
    client: Client, link: ClusterLink, mirrors: list[MirrorTopic]
) -> None:
    reconcile()
    report(link, fail_ledger(mirrors[1]))
    reconcile_link(link_id=link.pk)
    assert client.get("/readyz").json()["parts"]["mirrors"] != "ok"

    report(link, progress_of(mirrors[1], mirror_end=20, source_end=20, gaps=(GAP,)))
    reconcile_link(link_id=link.pk)

    assert client.get("/readyz").json()["parts"]["mirrors"] == "ok"
    assert ends()["bad"] == 20
    assert figures()[f"clusterlink_mirror_round_failures_total{LABELS}"] == 1


def test_only_reports_of_a_failed_mirror_are_processed_again(link: ClusterLink, mirrors: list[MirrorTopic]) -> None:
    _, bad, last = mirrors
    report(link, progress_of(bad), progress_of(last))
    reconcile_link(link_id=link.pk)
    sink, key = RedisProgress(django_settings.REDIS_URL, signing_keys.link_signer), plans.link_key(link)
    for mirror in (bad, last):
        sink.keep(key, progress_of(mirror, bytes_copied=5, gaps=(GAP,)))
    lost = [(plans.partition_keys(mirror)[0], OffsetRange(30, 40)) for mirror in (bad, last)]
    for loss in lost:
        sink.report_loss(key, loss)
    report(link, fail_ledger(bad))

    reconcile_link(link_id=link.pk)

    assert [kept.key for kept in observing.read_kept(link, mirrors).reports] == [plans.partition_keys(bad)[0]]
    assert jobs.read_losses(django_settings.REDIS_URL, plans.link_key(link), plans.signer_of(link)) == lost[:1]
    assert last.gaps.count() == 2
    assert MirrorPartition.objects.get(mirror=last).bytes_copied == 5

    report(link, progress_of(bad, mirror_end=20))
    reconcile_link(link_id=link.pk)

    assert observing.read_kept(link, mirrors).names == {}
    assert jobs.read_losses(django_settings.REDIS_URL, plans.link_key(link), plans.signer_of(link)) == []
    assert sorted(bad.gaps.values_list("reason", flat=True)) == [GapReason.ABORTED, GapReason.LOST]
    assert MirrorPartition.objects.get(mirror=bad).bytes_copied == 5


def test_figures_of_a_link_are_unknown_while_those_of_a_mirror_are(link: ClusterLink, mirrors: list[MirrorTopic]) -> None:
    report(link, fail_ledger(mirrors[1]))
    reconcile_link(link_id=link.pk)

    assert sorted(MirrorSample.objects.values_list("mirror__name", flat=True)) == ["a", "c"]
    assert not LinkSample.objects.exists()


def test_mirror_whose_due_tasks_fail_does_not_delay_a_failover(
    link: ClusterLink, make_mirror: MakeMirror, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, other = (
        make_mirror(name, MirrorState.PENDING_STOPPED, stop_reason="failover") for name in ("a", "b")
    )  # fmt: skip
    real = due_tasks.is_postponed

    def fails(mirror: MirrorTopic, **moment: Any) -> bool:
        if mirror.pk == bad.pk:
            raise KeyError("a mistake")
        return real(mirror, **moment)

    monkeypatch.setattr(due_tasks, "is_postponed", fails)

    reconcile_link(link_id=link.pk)

    assert [kwargs for name, kwargs in sent if name == "advance_stop"] == [{"mirror_id": other.pk}]
    assert redis_health.read_mirrors([link.pk])[link.pk].now == {"a": "KeyError"}


def test_failed_step_of_a_link_does_not_prevent_the_next_ones(
    link: ClusterLink, make_mirror: MakeMirror, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mirror("stops", MirrorState.PENDING_STOPPED, stop_reason="failover")
    monkeypatch.setattr(leases, "wanted_rows", lambda *_: 1 / 0)

    reconcile_link(link_id=link.pk)

    assert "advance_stop" in [name for name, _ in sent]
    round_of_link = redis_health.read_steps([redis_health.step_of_link(link.pk)])[redis_health.step_of_link(link.pk)]
    assert (round_of_link.success_age_ms, round_of_link.error, round_of_link.failures) == (None, "ZeroDivisionError", 1)


def test_mirror_deleted_during_the_pass_is_not_a_failure(
    link: ClusterLink, mirrors: list[MirrorTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = observing.read_kept

    def deletes(*args: Any) -> Any:
        MirrorTopic.objects.filter(pk=mirrors[1].pk).delete()
        return real(*args)

    monkeypatch.setattr(observing, "read_kept", deletes)
    report(link, fail_row(mirrors[1]), progress_of(mirrors[2], mirror_end=20))

    reconcile_link(link_id=link.pk)

    assert ends() == {"a": 10, "c": 20}
    assert redis_health.read_mirrors([link.pk])[link.pk].failures == 0
