"""Failovers while a topic is becoming a mirror: a writable topic is left, or none, and no application's record is deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.models import ClusterLink, LineageRange, MirrorTopic
from console.redis import redis_client
from console.tasks.mirrors import advance_reversal, advance_stop, delete_mirror, setup_mirror
from console.workflows import mirrors
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.copyjob.destination import head_seed
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import CLOSED_FIRST, MirrorEvent, MirrorState
from linkengine.jobs import mirror_topics as engine
from linkengine.jobs import stopping as engine_stopping
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.console.conftest import NOW
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("sent")]
S, E = MirrorState, MirrorEvent
START = 60
Interleave = Callable[..., None]
Pair = tuple[ClusterLink, ClusterLink]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "PREEMPTION_TIMEOUT_S", 0.5)


@pytest.fixture
def mirror(new_mirror: MirrorTopic, source_cluster: KafkaCluster) -> MirrorTopic:
    """A mirror to be set up; its source's log starts at 60 in both partitions."""
    there = ClusterAdmin(address_from_properties(source_cluster.client_properties("admin")))
    there.trim(new_mirror.source_topic, {0: START, 1: START})
    return new_mirror


@pytest.fixture
def interleave(monkeypatch: pytest.MonkeyPatch) -> Interleave:
    """Run something once, before or after a step of the set-up."""

    def put(module: Any, name: str, act: Callable[[], None], *, after: bool = False) -> None:
        real, left = getattr(module, name), [act]

        def step(*arguments: Any, **options: Any) -> Any:
            if left and not after:
                left.pop()()
            result = real(*arguments, **options)
            if left and after:
                left.pop()()
            return result

        monkeypatch.setattr(module, name, step)

    return put


def fail_over(mirror: MirrorTopic) -> None:
    request_operation(mirror, E.FAILOVER)
    advance_stop(mirror_id=mirror.pk)


def fail_over_without_locks(mirror: MirrorTopic) -> None:
    """Redis has lost the lock, or the set-up was suspended for longer than its lock lasts: the stop does not wait."""
    redis_client().delete(f"console:lock:{mirrors.lock_name(mirror.pk)}")
    fail_over(mirror)
    assert states(mirror) == [S.STOPPED]


def here_of(mirror: MirrorTopic) -> ClusterAdmin:
    return ClusterAdmin(mirror.link.destination.address)


def assert_open(mirror: MirrorTopic) -> None:
    here = here_of(mirror)
    assert states(mirror) == [S.STOPPED]
    assert not here.denies_writes(mirror.name)
    assert not here.denies_reads(mirror.name)
    assert not LineageRange.objects.filter(closed_at=None).exists()


def assert_ordinary_and_empty(mirror: MirrorTopic, cluster: KafkaCluster) -> None:
    here = here_of(mirror)
    assert_open(mirror)
    assert not has_mirror_configs(here.describe(mirror.name).configs)
    assert records(cluster, mirror.name) == {}
    assert write(cluster, mirror.name, "mine now") == [None]
    assert list(records(cluster, mirror.name).values()) == [b"mine now"]


def test_failover_before_the_topic_is_created_leaves_no_topic_and_no_acl(mirror: MirrorTopic, interleave: Interleave) -> None:
    interleave(engine, "_deny_access", lambda: fail_over(mirror), after=True)

    setup_mirror(mirror_id=mirror.pk)
    assert states(mirror) == [S.PENDING_STOPPED]  # the set-up had the lock, and has given way
    advance_stop(mirror_id=mirror.pk)

    assert_open(mirror)
    assert here_of(mirror).find(mirror.name) is None


@pytest.mark.parametrize("step", ["_deny_access", "_create"])
def test_setup_that_was_suspended_during_a_failover_leaves_the_topic_open(
    mirror: MirrorTopic, interleave: Interleave, destination_cluster: KafkaCluster, step: str
) -> None:
    interleave(engine, step, lambda: fail_over_without_locks(mirror))

    setup_mirror(mirror_id=mirror.pk)

    assert_open(mirror)
    found = here_of(mirror).find(mirror.name)
    assert (found.topic_id if found else "") == fresh(mirror).mirror_topic_id
    if step == "_create":  # suspended right before it
        assert_ordinary_and_empty(mirror, destination_cluster)
    else:
        assert found is None


def fail() -> None:
    raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "A broker is not available.")


@pytest.mark.parametrize("refused", [False, True], ids=["at once", "at the second attempt"])
def test_failover_during_seeding_leaves_an_empty_writable_topic(
    mirror: MirrorTopic, interleave: Interleave, destination_cluster: KafkaCluster, refused: bool
) -> None:
    interleave(engine, "seed_head", lambda: fail_over(mirror), after=True)  # the first of two partitions

    setup_mirror(mirror_id=mirror.pk)
    if refused:
        interleave(engine_stopping, "fence_partitions", fail)
        advance_stop(mirror_id=mirror.pk)
        assert states(mirror) == [S.PENDING_STOPPED]
    advance_stop(mirror_id=mirror.pk)

    assert here_of(mirror).offsets(mirror.name, OffsetKind.END)[1] == 1  # the fence
    assert_ordinary_and_empty(mirror, destination_cluster)
    request_operation(mirror, E.DELETE)
    delete_mirror(mirror_id=mirror.pk)
    assert here_of(mirror).find(mirror.name) is None  # its id was stored before it lost its mirror configs


def test_failover_between_fillers_ends_the_seeding(
    mirror: MirrorTopic, interleave: Interleave, destination_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_seed, "FILLER_MAX", 10)
    interleave(head_seed._FillerAppender, "_await", lambda: fail_over(mirror), after=True)

    setup_mirror(mirror_id=mirror.pk)
    advance_stop(mirror_id=mirror.pk)

    assert here_of(mirror).offsets(mirror.name, OffsetKind.END)[0] < START
    assert_ordinary_and_empty(mirror, destination_cluster)


@pytest.mark.parametrize(("module", "step"), [(head_seed, "_read_log_end"), (head_seed._FillerAppender, "_send")])
def test_records_written_after_a_failover_survive_a_suspended_setup(
    mirror: MirrorTopic, interleave: Interleave, destination_cluster: KafkaCluster, module: Any, step: str
) -> None:
    """It resumes with its next request already decided; the fence in the partition makes the broker refuse it."""
    values = [f"mine {number}" for number in range(START + 10)]

    def stop_and_write() -> None:
        fail_over_without_locks(mirror)
        assert write(destination_cluster, mirror.name, *values) == [None] * len(values)

    interleave(module, step, stop_and_write)

    setup_mirror(mirror_id=mirror.pk)

    assert_open(mirror)
    assert list(records(destination_cluster, mirror.name).values()) == [value.encode() for value in values]


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.usefixtures("copier")
def test_takeover_that_was_suspended_during_a_failover_leaves_the_topic_open(
    twin: MirrorTopic, interleave: Interleave, drive: Drive, source_cluster: KafkaCluster, after: bool
) -> None:
    request_operation(twin, E.REVERSE_AND_START)
    other = MirrorTopic.objects.exclude(link=twin.link_id).get(name=twin.source_topic)
    undone: list[str] = []
    interleave(jobs, "take_over_mirror", lambda: fail_over_without_locks(other), after=after)
    interleave(mirrors, "_reopen_topic", lambda: undone.append(other.name), after=True)

    drive(lambda: undone == [other.name])

    assert states(twin, other) == [S.STOPPED, S.STOPPED]
    assert_open(fresh(other))
    assert not has_mirror_configs(here_of(fresh(other)).describe(other.name).configs)
    assert write(source_cluster, other.name, "mine now") == [None]
    assert len(records(source_cluster, other.name)) == 201


@pytest.mark.parametrize("refused", [False, True], ids=["closed", "and the response was lost"])
def test_reversal_that_was_suspended_before_closing_the_source_leaves_it_open_after_a_failover(
    twin: MirrorTopic, monkeypatch: pytest.MonkeyPatch, source_cluster: KafkaCluster, refused: bool
) -> None:
    request_operation(twin, E.REVERSE_AND_START)
    other, close = MirrorTopic.objects.exclude(link=twin.link_id).get(name=twin.source_topic), jobs.close_topic

    def fail_over_first(*arguments: Any) -> None:
        fail_over_without_locks(other)
        close(*arguments)
        if refused:
            fail()

    monkeypatch.setattr(jobs, "close_topic", fail_over_first)
    advance_reversal(mirror_id=twin.pk)

    assert states(twin, other) == [S.ACTIVE, S.STOPPED]
    assert not here_of(fresh(other)).denies_writes(other.name)
    assert write(source_cluster, other.name, "mine still") == [None]


def test_failover_opens_a_source_that_a_crashed_reversal_has_closed(
    twin: MirrorTopic, monkeypatch: pytest.MonkeyPatch, source_cluster: KafkaCluster
) -> None:
    """The worker is killed between creating the ACL and checking whether it is still wanted; no task resumes it."""
    request_operation(twin, E.REVERSE_AND_START)
    other, close = MirrorTopic.objects.exclude(link=twin.link_id).get(name=twin.source_topic), jobs.close_topic

    def be_killed(*arguments: Any) -> None:
        fail_over(other)
        close(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "close_topic", be_killed)
    with pytest.raises(KeyboardInterrupt):
        advance_reversal(mirror_id=twin.pk)
    advance_stop(mirror_id=other.pk)

    assert states(twin, other) == [S.ACTIVE, S.STOPPED]
    assert not here_of(fresh(other)).denies_writes(other.name)
    assert write(source_cluster, other.name, "mine still") == [None]


def test_reversal_opens_the_source_if_its_other_side_is_deleted(twin: MirrorTopic, source_cluster: KafkaCluster) -> None:
    request_operation(twin, E.REVERSE_AND_START)
    other = fresh(MirrorTopic.objects.exclude(link=twin.link_id).get(name=twin.source_topic))
    jobs.close_topic(other.link.destination.address, other.name)
    other.delete()

    advance_reversal(mirror_id=twin.pk)

    assert states(twin) == [S.ACTIVE]
    assert write(source_cluster, twin.source_topic, "mine still") == [None]


def test_topic_stays_closed_until_its_row_is_stopped(twin: MirrorTopic, pair: Pair) -> None:
    """Its link is being deleted, which fails it over: that opens it, once stale writers can no longer write to it."""
    request_operation(twin, E.REVERSE_AND_START)
    other = fresh(MirrorTopic.objects.exclude(link=twin.link_id).get(name=twin.source_topic))
    jobs.close_topic(other.link.destination.address, other.name)
    ClusterLink.objects.filter(pk=other.link_id).update(deletion_requested_at=NOW)

    advance_reversal(mirror_id=twin.pk)
    assert (states(twin, other), here_of(other).denies_writes(other.name)) == ([S.ACTIVE, S.PENDING_MIRROR], True)

    fail_over(other)
    assert (states(other), here_of(other).denies_writes(other.name)) == ([S.STOPPED], False)


@pytest.mark.parametrize("state", sorted(CLOSED_FIRST))
def test_closed_topic_is_opened_even_if_mirrors_have_no_guard_acl(twin: MirrorTopic, state: MirrorState) -> None:
    """With transactions as gap filler, mirrors have no ACL that keeps producers out, but a topic that becomes a mirror has."""
    here = here_of(twin)
    jobs.close_topic(twin.link.destination.address, twin.name)
    ClusterLink.objects.filter(pk=twin.link_id).update(gap_filler=GapFiller.TRANSACTIONS)
    MirrorTopic.objects.filter(pk=twin.pk).update(state=state, holds_copy=False)

    fail_over(twin)

    assert states(twin) == [S.STOPPED]
    assert not here.denies_writes(twin.name)
