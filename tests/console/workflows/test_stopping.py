"""Stops that are suspended or crash while another worker continues them: the topic is opened by the owner of the stop only."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from console.models import MirrorTopic
from console.reconciling import plans
from console.reconciling.plans import fenced_ends, mirrored_ends
from console.redis import locks
from console.tasks.mirrors import advance_stop
from console.workflows import stopping
from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine.coordination.lease import RedisLease
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync import offset_clamping
from linkengine.sync.offset_clamping import clamp_groups
from tests.console.conftest import NOW
from tests.console.workflows.kills import phases
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]


@pytest.fixture
def paused(twin: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive) -> MirrorTopic:
    """All 200 records are copied, and the leases are released."""
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    request_operation(twin, MirrorEvent.PAUSE)
    drive(lambda: phases(twin) == {PartitionPhase.RELEASED})
    return twin


def test_stop_that_another_worker_took_over_does_not_change_the_topic(
    twin: MirrorTopic, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ClusterAdmin(twin.link.destination.address)

    def sleep_long(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(offset_clamping, "clamp_groups", clamp_groups)
        MirrorTopic.objects.filter(pk=twin.pk).update(fencing_at=NOW + timedelta(days=1))  # another worker's mark
        return clamp_groups(*arguments, **options)

    monkeypatch.setattr(offset_clamping, "clamp_groups", sleep_long)
    request_operation(twin, MirrorEvent.FAILOVER)
    advance_stop(mirror_id=twin.pk)

    assert here.denies_writes(twin.name)
    assert has_mirror_configs(here.describe(twin.name).configs)
    assert states(twin) == [MirrorState.PENDING_STOPPED]
    drive(lambda: states(twin) == [MirrorState.STOPPED])
    assert not here.denies_writes(twin.name)


def test_promotion_resumes_copying_after_a_crash_at_lag_zero(twin: MirrorTopic, drive: Drive) -> None:
    request_operation(twin, MirrorEvent.PROMOTE)
    MirrorTopic.objects.filter(pk=twin.pk).update(drained_at=NOW)  # crashed here; the source's 200 records came later

    drive(lambda: states(twin) == [MirrorState.STOPPED])

    report = twin.stop_reports.get()
    assert [(part["mirrored_end"], part["source_end"]) for part in report.partitions] == [(100, 100), (100, 100)]


def test_promotion_that_was_suspended_while_copying_resumed_does_not_fence(
    twin: MirrorTopic, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that are not copied yet would be lost."""
    last_check, slept = stopping._last_check, list[MirrorTopic]()

    def sleep_long(mirror: MirrorTopic, taken: Any) -> dict[ErrorCode, str]:
        blockers = last_check(mirror, taken)
        if not blockers:
            slept.append(mirror)
            MirrorTopic.objects.filter(pk=twin.pk).update(drained_at=None)  # another worker saw new records at the source
        return blockers

    with monkeypatch.context() as patch:
        patch.setattr(stopping, "_last_check", sleep_long)
        request_operation(twin, MirrorEvent.PROMOTE)
        drive(lambda: bool(slept))
        assert fresh(twin).fencing_at is None
    drive(lambda: states(twin) == [MirrorState.STOPPED])


@pytest.mark.parametrize("released", [True, False], ids=["released", "crashed"])
def test_foreign_write_after_the_last_copied_record_counts_as_not_copied(
    paused: MirrorTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    released: bool,
) -> None:
    """No tail check ran since the pause. Without a released lease, the last report of the copy worker counts."""
    assert write(source_cluster, paused.name, "not copied") == [None]
    assert write(destination_cluster, paused.name, "a foreign record", user="admin") == [None]
    if not released:
        forget_leases(paused)
    request_operation(paused, MirrorEvent.FAILOVER)
    drive(lambda: states(paused) == [MirrorState.STOPPED])

    assert [part["mirrored_end"] for part in paused.stop_reports.get().partitions] == [100, 100]
    assert (mirrored_ends(paused), fenced_ends(paused)) == (((0, 100), (1, 100)), ((0, 101), (1, 100)))


def test_record_that_could_not_be_compared_counts_as_not_copied(
    paused: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The mirror is one record longer than when it was paused, and its source is unavailable."""
    assert write(destination_cluster, paused.name, "a foreign record", user="admin") == [None]
    paused.link.properties = {**paused.link.properties, "bootstrap.servers": f"127.0.0.1:{free_port()}"}
    paused.link.save()
    request_operation(paused, MirrorEvent.RESUME)
    drive(lambda: phases(paused) == {PartitionPhase.SOURCE_UNREACHABLE})

    request_operation(paused, MirrorEvent.FAILOVER)
    drive(lambda: states(paused) == [MirrorState.STOPPED])

    assert (mirrored_ends(paused), fenced_ends(paused)) == (((0, 100), (1, 100)), ((0, 101), (1, 100)))


def test_failover_repeated_after_a_database_restore_has_the_same_mirrored_ends(
    stopped: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The database was restored from a backup; an application has written after the fence since."""
    assert write(destination_cluster, stopped.name, "an application's") == [None]
    MirrorTopic.objects.filter(pk=stopped.pk).update(state=MirrorState.PAUSED, stop_reason="", fencing_at=None)
    stopped.partitions.update(stopped_end=None, fenced_end=None)

    request_operation(stopped, MirrorEvent.FAILOVER)
    drive(lambda: states(stopped) == [MirrorState.STOPPED])

    assert (mirrored_ends(stopped), fenced_ends(stopped)) == (((0, 100), (1, 100)), ((0, 102), (1, 100)))


def forget_leases(mirror: MirrorTopic) -> None:
    """Take the state that the copy worker left in its leases, as a promotion does that resumes copying."""
    lease = RedisLease(settings.REDIS_URL, ttl_ms=plans.TUNING.lease_ttl_ms)
    grants = lease.acquire_all(plans.partition_keys(mirror), "another owner")
    assert len(grants) == 2
    lease.release_all(grants)


def test_promotion_retried_after_its_fence_does_not_check_the_lag_again(
    twin: MirrorTopic, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence makes the mirror one offset longer than its source, which has lost nothing."""
    checked, blockers_of = list[str](), stopping.blockers_of

    def note_check(mirror: MirrorTopic) -> dict[ErrorCode, str]:
        if mirror.fencing_at is not None:
            checked.append(mirror.name)
        return blockers_of(mirror)

    def fail(*_: Any, **__: Any) -> Any:
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The controller is not available.")

    monkeypatch.setattr(stopping, "blockers_of", note_check)
    with monkeypatch.context() as patch:
        patch.setattr(ClusterAdmin, "allow_many_writes", fail)
        request_operation(twin, MirrorEvent.PROMOTE)
        drive(lambda: twin.transition_errors.filter(code=ErrorCode.TIMEOUT_ERROR).exists())
    drive(lambda: states(twin) == [MirrorState.STOPPED])

    assert checked == []


def test_promotion_continued_after_its_fence_reports_what_was_not_copied(twin: MirrorTopic) -> None:
    request_operation(twin, MirrorEvent.PROMOTE)
    MirrorTopic.objects.filter(pk=twin.pk).update(fencing_at=NOW)  # a worker crashed here; the source's 200 records came later
    advance_stop(mirror_id=twin.pk)

    assert states(twin) == [MirrorState.STOPPED]
    report = twin.stop_reports.get()
    assert (report.reason, report.records_not_copied) == ("promote", 200)
    assert [(part["mirrored_end"], part["source_end"]) for part in report.partitions] == [(0, 100), (0, 100)]


def test_promotion_whose_source_is_lost_after_the_fence_reports_unknown_loss(twin: MirrorTopic) -> None:
    request_operation(twin, MirrorEvent.PROMOTE)
    MirrorTopic.objects.filter(pk=twin.pk).update(fencing_at=NOW)
    twin.link.properties = {**twin.link.properties, "bootstrap.servers": f"127.0.0.1:{free_port()}"}
    twin.link.save()
    advance_stop(mirror_id=twin.pk)

    assert states(twin) == [MirrorState.STOPPED]
    report = twin.stop_reports.get()
    assert (report.records_not_copied, report.rpo_ms, report.source_seen_at) == (None, None, None)


def test_mirror_with_a_foreign_record_in_place_of_a_source_record_is_not_promoted(
    paused: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """It was written while nothing was copied, and both sides end at the same offset."""
    assert write(source_cluster, paused.name, "the source's 101st") == [None]
    assert write(destination_cluster, paused.name, "a foreign record", user="admin") == [None]

    request_operation(paused, MirrorEvent.PROMOTE)
    drive(lambda: PartitionPhase.FAILED in phases(paused))
    # a check that started before may still report a lag
    drive(lambda: not locks.is_locked(f"stop:{StopReason.PROMOTE}:{paused.pk}"))
    for _ in range(3):
        advance_stop(mirror_id=paused.pk)
    drive(lambda: _codes(paused) == [ErrorCode.FOREIGN_WRITE])

    assert (states(paused), fresh(paused).fencing_at) == ([MirrorState.PENDING_STOPPED], None)


def test_unchanged_paused_mirror_is_promoted_without_another_copy_worker(
    paused: MirrorTopic,
) -> None:
    request_operation(paused, MirrorEvent.PROMOTE)
    advance_stop(mirror_id=paused.pk)
    assert states(paused) == [MirrorState.STOPPED]


def test_mirror_with_markers_in_flight_is_promoted_after_a_clean_release(
    paused: MirrorTopic,
) -> None:
    """Later owners send no marker, so each passes on that the crashed owner's markers may arrive: the fence handles them."""
    keys = [partition.key for partition in plans.assignments_of(paused)]
    crashed, other = (RedisLease(settings.REDIS_URL, ttl_ms=ttl_ms) for ttl_ms in (300, 4_000))
    lost = crashed.acquire_all(keys, "crashed")
    assert crashed.announce_markers(lost) == set(keys)
    time.sleep(0.5)
    for before, grant in zip(lost, other.acquire_all(keys, "other"), strict=True):
        assert (grant.clean, grant.markers_announced) == (False, True)
        other.release(grant, seen=before.last_release, clean=False)

    request_operation(paused, MirrorEvent.PROMOTE)
    advance_stop(mirror_id=paused.pk)
    assert states(paused) == [MirrorState.STOPPED]


def test_mirror_without_a_tail_check_after_a_crash_is_not_promoted(paused: MirrorTopic, drive: Drive) -> None:
    crashed = RedisLease(settings.REDIS_URL, ttl_ms=300)
    assert crashed.acquire_all([partition.key for partition in plans.assignments_of(paused)], "crashed")
    time.sleep(0.5)

    request_operation(paused, MirrorEvent.PROMOTE)
    advance_stop(mirror_id=paused.pk)
    assert (states(paused), fresh(paused).fencing_at) == ([MirrorState.PENDING_STOPPED], None)
    drive(lambda: states(paused) == [MirrorState.STOPPED])


def _codes(mirror: MirrorTopic) -> list[str]:
    return list(mirror.transition_errors.values_list("code", flat=True))
