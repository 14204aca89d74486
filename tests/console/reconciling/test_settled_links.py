"""A settled link is reconciled every few seconds, and immediately after news or an action."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from console.config import signing_keys
from console.models import ClusterLink, CopyWorker, LinkTask, MirrorPartition, MirrorTopic
from console.models.links import show_change
from console.reconciling import plans, sampling
from console.redis import locks, redis_client
from console.tasks import links
from console.tasks.links import _send_links, reconcile_link, sample_link
from console.workflows import observing, pool
from linkengine import jobs
from linkengine.coordination import progress as engine_progress
from linkengine.coordination.pool import RedisAssignments
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.linktasks import TaskName
from linkengine.domain.plans import PartitionPhase, PartitionProgress, topic_ids_of
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import MirrorState
from linkengine.domain.workers import Heartbeat, worker_id_for
from tests.console.conftest import NOW, MakeMirror

Sent = list[tuple[str, dict[str, Any]]]
TOPIC_IDS = topic_ids_of("topic-id", "")


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/5"
    settings.COPY_WORKERS = 1
    redis_client().flushdb()
    redis_client().set("console:copy-workers-since", 1)
    monkeypatch.setattr(pool, "HEARTBEAT_CACHE_S", 0.0)
    monkeypatch.setattr(observing, "BUSY", 1e-6)  # every pass is expensive


@pytest.fixture
def mirror(make_mirror: MakeMirror) -> MirrorTopic:
    beat("a")
    return make_mirror(partitions=1)


@pytest.fixture
def sink() -> RedisProgress:
    return RedisProgress(django_settings.REDIS_URL, signing_keys.link_signer)


def beat(name: str) -> None:
    worker_id = worker_id_for(0, name)
    CopyWorker.objects.update_or_create(number=0, defaults={"worker_id": worker_id, "submitted_at": NOW})
    setup = jobs.setup_worker(
        worker_id, redis_url=django_settings.REDIS_URL, secrets=signing_keys.worker_secrets(), lease_ttl_ms=4_000
    )
    RedisAssignments(setup).beat(Heartbeat(worker_id=worker_id, host="h"))


def report(sink: RedisProgress, mirror: MirrorTopic, **values: Any) -> None:
    now_ms = int(time.time() * 1000)
    known: dict[str, Any] = {
        "phase": PartitionPhase.COPYING,
        "source_end": 10,
        "mirror_end": 10,
        "topic_ids": TOPIC_IDS,
        **values,
    }
    progress = PartitionProgress(
        key=f"{plans.mirror_key(mirror)}/0", copy_run_id="h", observed_at_ms=now_ms, source_seen_at_ms=now_ms, **known
    )
    sink.report(plans.link_key(mirror.link), [progress])


def settle(link: ClusterLink) -> None:
    """Reconcile until a pass changes nothing."""
    for _ in range(3):
        reconcile_link(link_id=link.pk)


def is_reconciled(sent: Sent) -> bool:
    """Do what the beat does each second; return whether it sent a reconcile pass."""
    del sent[:]
    for link_id in ClusterLink.objects.values_list("pk", flat=True):
        locks.release_claim(f"reconcile:{link_id}")
    _send_links()
    return any(task == "reconcile_link" for task, _ in sent)


def tasks_of(sent: Sent) -> list[TaskName]:
    """Return the recurring tasks that were sent."""
    return [arguments["task"] for task, arguments in sent if task == "run_link_task"]


def test_a_settled_link_is_not_reconciled_until_news_is_reported(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent
) -> None:
    report(sink, mirror)
    settle(link)
    assert not is_reconciled(sent)

    report(sink, mirror, source_end=11, mirror_end=11, bytes_copied=5)  # changed offsets are samples
    assert not is_reconciled(sent)

    report(sink, mirror, phase=PartitionPhase.SOURCE_UNREACHABLE, error_code="TIMEOUT_ERROR", error_message="Silent.")
    assert is_reconciled(sent)


@pytest.mark.parametrize("what", ["loss", "page", "settings", "worker", "redis"])
def test_a_change_that_needs_a_pass_causes_one(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent, what: str
) -> None:
    report(sink, mirror)
    settle(link)
    assert not is_reconciled(sent)

    match what:
        case "loss":
            sink.report_loss(plans.link_key(link), (f"{plans.mirror_key(mirror)}/0", OffsetRange(3, 5)))
        case "page":
            show_change(link.pk)
        case "settings":
            ClusterLink.objects.update(revision=7)
        case "worker":
            beat("b")
        case _:
            redis_client().flushdb()

    assert is_reconciled(sent)


@pytest.mark.parametrize("state", [MirrorState.PENDING_SETUP, MirrorState.PENDING_STOPPED, MirrorState.SOURCE_UNAVAILABLE])
def test_a_link_with_a_mirror_in_transition_is_not_settled(
    mirror: MirrorTopic, link: ClusterLink, make_mirror: MakeMirror, sink: RedisProgress, sent: Sent, state: MirrorState
) -> None:
    report(sink, mirror)
    make_mirror("payments", state=state, stop_reason="PROMOTE" if state is MirrorState.PENDING_STOPPED else "")
    settle(link)

    assert is_reconciled(sent)


def test_a_link_without_reports_is_not_settled(mirror: MirrorTopic, link: ClusterLink, sent: Sent) -> None:
    settle(link)

    assert is_reconciled(sent)


def test_a_recurring_task_that_becomes_due_is_sent_without_a_pass(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent
) -> None:
    report(sink, mirror)
    settle(link)
    LinkTask.objects.update_or_create(
        link=link, name=TaskName.TOPIC_CONFIGS, defaults={"next_run_at": timezone.now() + timedelta(seconds=30)}
    )
    locks.release_claim(f"task:{link.pk}:{TaskName.TOPIC_CONFIGS}")

    assert not is_reconciled(sent)
    assert tasks_of(sent) == []

    LinkTask.objects.filter(link=link).update(next_run_at=timezone.now())

    assert not is_reconciled(sent)
    assert tasks_of(sent) == [TaskName.TOPIC_CONFIGS]


def test_passes_of_a_link_with_cheap_passes_are_not_skipped(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "BUSY", 1e6)
    report(sink, mirror)
    settle(link)

    assert is_reconciled(sent)


def stored_since(second: float) -> None:
    """Set the time of the stored row, and of the last samples, to so many seconds ago."""
    for link_id in ClusterLink.objects.values_list("pk", flat=True):
        locks.release_claim(f"samples:{link_id}")
    MirrorPartition.objects.update(observed_at=timezone.now() - timedelta(seconds=second))


def level_report(sink: RedisProgress, mirror: MirrorTopic, **values: Any) -> None:
    now_ms = int(time.time() * 1000)
    report(sink, mirror, source_high_watermark=values.get("mirror_end", 10), caught_up_at_ms=now_ms, **values)


def test_a_settled_link_stores_samples_and_the_time_of_being_in_sync(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent
) -> None:
    level_report(sink, mirror)
    settle(link)
    stored_since(11)
    level_report(sink, mirror, source_end=12, mirror_end=12, bytes_copied=50)
    before = timezone.now()

    sample_link(link_id=link.pk)

    link.refresh_from_db()
    assert MirrorPartition.objects.get().mirror_end == 12
    assert link.in_sync_at is not None
    assert not is_reconciled(sent)  # passes are still skipped, although pages show a change
    sample_link(link_id=link.pk)
    observed_at = MirrorPartition.objects.get().observed_at
    assert observed_at is not None
    assert observed_at >= before - timedelta(seconds=8)  # not eleven


def test_a_settled_idle_link_stores_no_partition(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent
) -> None:
    level_report(sink, mirror)
    settle(link)
    stored_since(11)
    before = MirrorPartition.objects.get().observed_at
    level_report(sink, mirror)

    sample_link(link_id=link.pk)

    assert MirrorPartition.objects.get().observed_at == before
    assert not is_reconciled(sent)


@pytest.mark.parametrize("what", ["behind", "silent", "another owner", "kept"])
def test_sampling_a_link_that_needs_a_pass_reconciles_it(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    level_report(sink, mirror)
    settle(link)
    if what == "behind":
        now_ms = int(time.time() * 1000)
        ends = {"source_end": 90, "source_high_watermark": 90, "mirror_end": 10}
        report(sink, mirror, caught_up_at_ms=now_ms - 20_000, **ends)
    elif what == "silent":
        redis_client().delete(f"progress:{plans.link_key(link)}")
    elif what == "another owner":
        MirrorPartition.objects.update(copy_run_id="before")
    else:
        now_ms = int(time.time() * 1000)
        kept = PartitionProgress(
            key=f"{plans.mirror_key(mirror)}/0",
            copy_run_id="h",
            phase=PartitionPhase.RELEASED,
            observed_at_ms=now_ms,
            topic_ids=TOPIC_IDS,
        )
        sink.keep(plans.link_key(link), kept)
    reconciled: list[int] = []
    monkeypatch.setattr(links, "reconcile_link", lambda *, link_id: reconciled.append(link_id))

    sample_link(link_id=link.pk)

    assert reconciled == [link.pk]
    assert is_reconciled(sent)


def test_a_partition_of_a_paused_mirror_that_is_not_behind_needs_a_pass(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent, make_mirror: MakeMirror
) -> None:
    level_report(sink, mirror)
    settle(link)
    paused = make_mirror("payments", partitions=1, state=MirrorState.PAUSED)
    paused.partitions.update(behind=False)
    before = ClusterLink.objects.get(pk=link.pk).in_sync_at

    assert not observing.sample(link, now=timezone.now())

    assert ClusterLink.objects.get(pk=link.pk).in_sync_at == before


@pytest.fixture
def read_all(monkeypatch: pytest.MonkeyPatch, sink: RedisProgress, mirror: MirrorTopic, link: ClusterLink) -> Mock:
    """The calls that read all reports, after a sample that found an idle link in sync."""
    monkeypatch.setattr(engine_progress, "RENEW_S", 0.0)
    for _ in range(2):
        level_report(sink, mirror, generation=1)
    settle(link)
    sample_link(link_id=link.pk)
    ClusterLink.objects.update(in_sync_at=None)
    calls = Mock(wraps=jobs.read_readings)
    monkeypatch.setattr(jobs, "read_readings", calls)
    return calls


def test_samples_of_an_idle_link_read_only_renewals(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, read_all: Mock, sent: Sent
) -> None:
    before = timezone.now() - timedelta(milliseconds=50)
    level_report(sink, mirror, generation=1)

    sample_link(link_id=link.pk)

    link.refresh_from_db()
    assert not read_all.called
    assert link.in_sync_at is not None
    assert link.in_sync_at >= before
    assert not is_reconciled(sent)


@pytest.mark.parametrize("what", ["offsets", "error", "lost", "page", "settings", "time"])
def test_all_reports_of_an_idle_link_are_read_after_a_change(
    mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, read_all: Mock, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match what:
        case "offsets":
            level_report(sink, mirror, generation=1, source_end=12, mirror_end=12, bytes_copied=5)
        case "error":
            report(sink, mirror, generation=1, phase=PartitionPhase.SOURCE_UNREACHABLE, error_code="TIMEOUT_ERROR")
        case "lost":
            redis_client().delete(f"renewals:{plans.link_key(link)}")
        case "page":
            show_change(link.pk)
        case "settings":
            ClusterLink.objects.update(revision=7)
        case _:
            in_sync = observing._in_sync[link.pk]
            monkeypatch.setitem(observing._in_sync, link.pk, replace(in_sync, until_s=0.0))

    sample_link(link_id=link.pk)

    assert read_all.called


def test_an_idle_link_whose_reports_are_no_longer_renewed_needs_a_pass(link: ClusterLink, read_all: Mock) -> None:
    """Its copy worker was killed, or hangs."""
    link.refresh_from_db()

    assert not observing.sample(link, now=timezone.now() + sampling.LEAST_LATENESS + timedelta(seconds=1))

    link.refresh_from_db()
    assert link.in_sync_at is None


def test_late_records_need_a_pass(mirror: MirrorTopic, link: ClusterLink, sink: RedisProgress, sent: Sent) -> None:
    level_report(sink, mirror)
    settle(link)
    stored_since(60)
    MirrorPartition.objects.update(behind=True, complete_at=timezone.now() - timedelta(minutes=1))
    level_report(sink, mirror, source_end=12, mirror_end=12, bytes_copied=50)

    assert not observing.sample(link, now=timezone.now())

    assert MirrorPartition.objects.get().mirror_end == 10
