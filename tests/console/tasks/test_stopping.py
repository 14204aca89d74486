"""A stop that slept while another worker went on with it: whatever the topic is by then, it is not opened."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from console import store
from console.models import MirrorTopic
from console.reconciling import plans
from console.reconciling.ends import fenced_ends, mirrored_ends
from console.tasks import stopping
from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine.coordination.lease import RedisLease
from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason
from linkengine.jobs import stopping as engine
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.tasks.kills import phases
from tests.console.tasks.reversal import Drive, do, fresh, records, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]


@pytest.fixture
def paused(twin: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive) -> MirrorTopic:
    """All 200 records are copied, and the copier has let go."""
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    do(twin, MirrorEvent.PAUSE)
    drive(lambda: phases(twin) == {PartitionPhase.RELEASED})
    return twin


def test_a_stop_that_was_taken_over_neither_opens_the_topic_nor_changes_it(
    twin: MirrorTopic, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ClusterAdmin(twin.link.destination.address)
    clamp = engine.clamp_groups

    def sleep_long(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(engine, "clamp_groups", clamp)
        MirrorTopic.objects.filter(pk=twin.pk).update(fencing_at=NOW + timedelta(days=1))  # another worker's mark
        return clamp(*arguments, **options)

    monkeypatch.setattr(engine, "clamp_groups", sleep_long)
    do(twin, MirrorEvent.FAILOVER)
    stopping.advance_stop(mirror_id=twin.pk)

    assert here.denies_writes(twin.name)
    assert looks_like_mirror(here.describe(twin.name).configs)
    assert states(twin) == [MirrorState.PENDING_STOPPED]
    drive(lambda: states(twin) == [MirrorState.STOPPED])
    assert not here.denies_writes(twin.name)


def test_a_promotion_whose_worker_died_when_all_was_copied_copies_on_what_came_later(twin: MirrorTopic, drive: Drive) -> None:
    do(twin, MirrorEvent.PROMOTE)
    MirrorTopic.objects.filter(pk=twin.pk).update(drained_at=NOW)  # it died here; the source's 200 records came after

    drive(lambda: states(twin) == [MirrorState.STOPPED])

    report = twin.stop_reports.get()
    assert [(one["mirrored_end"], one["source_end"]) for one in report.partitions] == [(100, 100), (100, 100)]


def test_a_promotion_that_slept_while_the_copier_was_let_go_on_does_not_fence(
    twin: MirrorTopic, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the copier has not copied yet would be left behind."""
    last_look, slept = stopping._last_check, list[MirrorTopic]()

    def sleep_long(mirror: MirrorTopic, taken: Any) -> dict[ErrorCode, str]:
        blockers = last_look(mirror, taken)
        if not blockers:
            slept.append(mirror)
            MirrorTopic.objects.filter(pk=twin.pk).update(drained_at=None)  # another worker saw that the source went on
        return blockers

    with monkeypatch.context() as patch:
        patch.setattr(stopping, "_last_check", sleep_long)
        do(twin, MirrorEvent.PROMOTE)
        drive(lambda: bool(slept))
        assert fresh(twin).fencing_at is None
    drive(lambda: states(twin) == [MirrorState.STOPPED])


@pytest.mark.parametrize("released", [True, False], ids=["let go", "died"])
def test_what_a_stranger_wrote_behind_the_copier_counts_as_not_copied(
    paused: MirrorTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    released: bool,
) -> None:
    """Nobody has looked at the paused mirror since; where the lease tells nothing, what the copier reported does."""
    assert write(source_cluster, paused.name, "not copied") == [None]
    assert write(destination_cluster, paused.name, "a stranger's", user="admin") == [None]
    if not released:
        forget_leases(paused)
    do(paused, MirrorEvent.FAILOVER)
    drive(lambda: states(paused) == [MirrorState.STOPPED])

    assert [one["mirrored_end"] for one in paused.stop_reports.get().partitions] == [100, 100]
    assert (mirrored_ends(paused), fenced_ends(paused)) == (((0, 100), (1, 100)), ((0, 101), (1, 100)))


def test_what_a_copier_found_and_could_not_compare_counts_as_not_copied(
    paused: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The mirror is one record longer than when it was paused, and its source is away."""
    assert write(destination_cluster, paused.name, "a stranger's", user="admin") == [None]
    paused.link.properties = {**paused.link.properties, "bootstrap.servers": f"127.0.0.1:{free_port()}"}
    paused.link.save()
    do(paused, MirrorEvent.RESUME)
    drive(lambda: phases(paused) == {PartitionPhase.SOURCE_UNREACHABLE})

    do(paused, MirrorEvent.FAILOVER)
    drive(lambda: states(paused) == [MirrorState.STOPPED])

    assert (mirrored_ends(paused), fenced_ends(paused)) == (((0, 100), (1, 100)), ((0, 101), (1, 100)))


def test_a_failover_that_the_console_has_forgotten_ends_where_it_did_the_first_time(
    stopped: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The database was put back to a backup; an application has written behind the fence since."""
    assert write(destination_cluster, stopped.name, "an application's") == [None]
    MirrorTopic.objects.filter(pk=stopped.pk).update(state=MirrorState.PAUSED, stop_reason="", fencing_at=None)
    stopped.partitions.update(stopped_end=None, fenced_end=None)

    do(stopped, MirrorEvent.FAILOVER)
    drive(lambda: states(stopped) == [MirrorState.STOPPED])

    assert (mirrored_ends(stopped), fenced_ends(stopped)) == (((0, 100), (1, 100)), ((0, 102), (1, 100)))


def forget_leases(mirror: MirrorTopic) -> None:
    """Take what the copier left in its leases, as a promotion does that goes back to copying."""
    lease = RedisLease(settings.REDIS_URL, ttl_ms=plans.TUNING.lease_ttl_ms)
    grants = lease.acquire_all(plans.partition_keys(mirror), "somebody")
    assert len(grants) == 2
    lease.release_all(grants)


def test_a_promotion_that_could_not_let_producers_in_after_its_fence_does_not_accuse_its_source(
    twin: MirrorTopic, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence makes the mirror one offset longer than a source that has lost nothing."""
    asked, blockers_of = list[str](), stopping.blockers_of

    def note_question(mirror: MirrorTopic) -> dict[ErrorCode, str]:
        if mirror.fencing_at is not None:
            asked.append(mirror.name)
        return blockers_of(mirror)

    def fail(*_: Any, **__: Any) -> Any:
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The controller is away.")

    monkeypatch.setattr(stopping, "blockers_of", note_question)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_let_producers_in", fail)
        do(twin, MirrorEvent.PROMOTE)
        drive(lambda: twin.transition_errors.filter(code=ErrorCode.TIMEOUT_ERROR).exists())
    drive(lambda: states(twin) == [MirrorState.STOPPED])

    assert asked == []


def test_a_promotion_that_goes_on_after_its_fence_tells_what_it_did_not_copy(twin: MirrorTopic) -> None:
    do(twin, MirrorEvent.PROMOTE)
    MirrorTopic.objects.filter(pk=twin.pk).update(fencing_at=NOW)  # a worker died here; the source's 200 records came after
    stopping.advance_stop(mirror_id=twin.pk)

    assert states(twin) == [MirrorState.STOPPED]
    report = twin.stop_reports.get()
    assert (report.reason, report.records_not_copied) == ("promote", 200)
    assert [(one["mirrored_end"], one["source_end"]) for one in report.partitions] == [(0, 100), (0, 100)]


def test_a_promotion_whose_source_goes_away_after_the_fence_does_not_know_what_it_lacks(twin: MirrorTopic) -> None:
    do(twin, MirrorEvent.PROMOTE)
    MirrorTopic.objects.filter(pk=twin.pk).update(fencing_at=NOW)
    twin.link.properties = {**twin.link.properties, "bootstrap.servers": f"127.0.0.1:{free_port()}"}
    twin.link.save()
    stopping.advance_stop(mirror_id=twin.pk)

    assert states(twin) == [MirrorState.STOPPED]
    report = twin.stop_reports.get()
    assert (report.records_not_copied, report.rpo_ms, report.source_seen_at) == (None, None, None)


def test_a_record_of_a_stranger_in_the_place_of_a_source_record_is_not_promoted(
    paused: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """It came while nobody copied, and both sides end at the same offset."""
    assert write(source_cluster, paused.name, "the source's 101st") == [None]
    assert write(destination_cluster, paused.name, "a stranger's", user="admin") == [None]

    do(paused, MirrorEvent.PROMOTE)
    drive(lambda: PartitionPhase.FAILED in phases(paused))
    # a look that began before may still tell of a lag
    drive(lambda: not store.is_held(f"stop:{StopReason.PROMOTE}:{paused.pk}"))
    for _ in range(3):
        stopping.advance_stop(mirror_id=paused.pk)
    drive(lambda: _codes(paused) == [ErrorCode.FOREIGN_WRITE])

    assert (states(paused), fresh(paused).fencing_at) == ([MirrorState.PENDING_STOPPED], None)


def test_a_paused_mirror_that_is_as_its_copier_left_it_is_promoted_without_another_copier(
    paused: MirrorTopic,
) -> None:
    do(paused, MirrorEvent.PROMOTE)
    stopping.advance_stop(mirror_id=paused.pk)
    assert states(paused) == [MirrorState.STOPPED]


def test_a_mirror_whose_copier_died_with_markers_under_way_is_promoted_once_another_has_let_go_in_good_order(
    paused: MirrorTopic,
) -> None:
    """No copier after it sends a marker of its own, so each hands on that the dead one's may come: the fence is for that."""
    keys = [one.key for one in plans.assignments_of(paused)]
    dead, other = (RedisLease(settings.REDIS_URL, ttl_ms=ttl_ms) for ttl_ms in (300, 4_000))
    lost = dead.acquire_all(keys, "dead")
    assert dead.arm(lost) == set(keys)
    time.sleep(0.5)
    for before, grant in zip(lost, other.acquire_all(keys, "other"), strict=True):
        assert (grant.clean, grant.armed) == (False, True)
        other.release(grant, seen=before.left, clean=False)

    do(paused, MirrorEvent.PROMOTE)
    stopping.advance_stop(mirror_id=paused.pk)
    assert states(paused) == [MirrorState.STOPPED]


def test_a_mirror_that_nobody_compared_since_its_copier_died_is_not_promoted(paused: MirrorTopic, drive: Drive) -> None:
    dead = RedisLease(settings.REDIS_URL, ttl_ms=300)
    assert dead.acquire_all([one.key for one in plans.assignments_of(paused)], "dead")
    time.sleep(0.5)

    do(paused, MirrorEvent.PROMOTE)
    stopping.advance_stop(mirror_id=paused.pk)
    assert (states(paused), fresh(paused).fencing_at) == ([MirrorState.PENDING_STOPPED], None)
    drive(lambda: states(paused) == [MirrorState.STOPPED])


def _codes(mirror: MirrorTopic) -> list[str]:
    return list(mirror.transition_errors.values_list("code", flat=True))
