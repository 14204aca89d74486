"""The rules of PartitionState, without brokers: when records and markers may be sent."""

from dataclasses import replace

import pytest

from linkengine.batches.steps import Append, Fill
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.partition_state import (
    OVERLAP_S,
    REMEMBERED_MS,
    PartitionState,
    has_no_late_markers,
    log_end_query,
    must_wait_like_marker,
)
from linkengine.copyjob.producer_state import coordinator_epoch_for
from linkengine.copyjob.values import SourceOrigin
from linkengine.domain.producers import ProducerState, TransactionalProducer
from linkengine.domain.states import GapReason
from linkengine.domain.workers import Grant
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import BOUND, SEEN, UNTIL, log_end, owned, partition, planned, sent

NOW_MS = 1_700_000_000_000


def assert_goes_alone(mirror: PartitionState, first: Append, second: Append) -> None:
    """Send the first append, and check that the second waits for its acknowledgement."""
    mirror.send_append(first)
    assert mirror.next_step() is None
    mirror.acknowledged(first)
    assert mirror.next_step() is second


def now_ms() -> int:
    return NOW_MS


def settled(mirror: PartitionState) -> bool:
    assert mirror.grant is not None
    return has_no_late_markers(mirror, mirror.grant)


def fill_with_marker(mirror: PartitionState, offset: int) -> None:
    """Send a marker and count it as verified."""
    step = Fill(offset, offset + 1, GapReason.ABORTED)
    mirror.planned([step], Buffer())
    mirror.send_fill(step, most=100)
    mirror.filled(now_ms=0)


def test_first_append_of_an_attempt_is_sent_alone() -> None:
    mirror = owned(generation=9, clean=True)
    first, second, third = planned(mirror, 10, 12, 14)

    assert_goes_alone(mirror, first, second)
    mirror.send_append(second)
    assert mirror.next_step() is third


def test_first_append_after_a_pause_is_sent_alone() -> None:
    mirror = owned(generation=9, clean=True)
    mirror.acknowledged(sent(mirror))
    first, second = planned(mirror, 12, 14)

    assert_goes_alone(mirror, first, second)


def test_first_append_of_the_next_attempt_is_sent_alone() -> None:
    mirror = owned(generation=9, clean=True)
    first, second, _ = planned(mirror, 10, 12, 14)
    mirror.send_append(first)
    mirror.acknowledged(first)
    mirror.send_append(second)

    mirror.interrupt(retry_at=0.0)
    mirror.resumed(log_end(end=12), now_ms=0)
    again, _ = planned(mirror, 12, 14)
    mirror.send_append(again)

    assert mirror.next_step() is None


@pytest.mark.parametrize(
    ("generation", "clean"), [(9, False), (1, True), (4, True)], ids=["expired lease", "no lease state", "lease state lost"]
)
def test_markers_wait_until_the_previous_owners_lease_has_expired(generation: int, clean: bool) -> None:
    mirror = owned(generation=generation, clean=clean)

    assert not mirror.may_fill(UNTIL)
    assert mirror.may_fill(UNTIL + OVERLAP_S)


def test_log_end_is_read_again_after_the_wait_for_the_previous_owner() -> None:
    mirror = owned(generation=9, clean=False)

    assert not mirror.must_read_again(UNTIL)
    assert mirror.must_read_again(UNTIL + OVERLAP_S)
    assert not mirror.must_read_again(UNTIL + OVERLAP_S)
    assert not owned(generation=9, clean=True).must_read_again(UNTIL + OVERLAP_S)


@pytest.mark.parametrize(
    ("written_ms", "producer", "held_up"),
    [(NOW_MS, SEEN, False), (NOW_MS - REMEMBERED_MS - 1, SEEN, True), (NOW_MS, ProducerState(), True)],
    ids=["recent records", "old records", "no producer state at the leader"],
)
@pytest.mark.parametrize("transactions", [None, BOUND], ids=["markers", "transactions"])
def test_records_that_the_leader_could_accept_from_two_owners_wait_like_markers(
    written_ms: int, producer: ProducerState, held_up: bool, transactions: TransactionalProducer | None
) -> None:
    """A leader expires producers by the time of their records: it would then accept a batch from both owners."""
    clean, unclean = (owned(generation=9, clean=clean, producer=producer, transactions=transactions) for clean in (True, False))
    step = replace(planned(unclean, 10)[0], max_timestamp=written_ms)

    assert must_wait_like_marker(unclean, step, now_ms=now_ms) is held_up
    assert not must_wait_like_marker(clean, step, now_ms=now_ms)
    assert unclean.must_read_again(UNTIL + OVERLAP_S)
    assert not must_wait_like_marker(unclean, step, now_ms=now_ms)


def test_markers_are_sent_immediately_after_a_clean_hand_over() -> None:
    assert owned(generation=9, clean=True).may_fill(0.0)
    assert owned(generation=1, clean=True, producer=ProducerState()).may_fill(0.0)


def test_first_generation_is_not_trusted_to_be_clean() -> None:
    for generation, trusted in ((1, False), (2, True)):
        mirror = partition()
        mirror.start_hold(Grant(key=mirror.key, generation=generation, clean=True, valid_until=UNTIL))
        assert log_end_query(mirror).clean is trusted


@pytest.mark.parametrize(("epoch", "relied_on"), [(5, True), (6, False), (3, False)], ids=["same", "newer", "set back"])
def test_log_end_of_the_previous_owner_is_trusted_only_under_the_same_source_leader_epoch(epoch: int, relied_on: bool) -> None:
    mirror = partition()
    mirror.origin = SourceOrigin(Leader(broker=1, epoch=epoch), b"t")
    mirror.start_hold(Grant(key=mirror.key, generation=9, clean=True, valid_until=UNTIL, seen=(5, 1_000)))

    query = log_end_query(mirror)

    assert (query.expected_end, query.check_tail) == ((1_000, False) if relied_on else (None, True))
    assert query.previous_end == query.expected_end


@pytest.mark.parametrize("markers_announced", [True, False], ids=["with markers", "with data only"])
def test_only_a_marker_settles_what_a_crashed_owner_left_in_flight(markers_announced: bool) -> None:
    mirror = partition()
    grant = Grant(key=mirror.key, generation=9, clean=False, markers_announced=markers_announced, valid_until=UNTIL)
    mirror.start_hold(grant)
    assert (
        has_no_late_markers(mirror, grant) is not markers_announced
    )  # also if the lease is released before the mirror was read
    mirror.resumed(log_end(), now_ms=0)
    mirror.acknowledged(sent(mirror))
    assert has_no_late_markers(mirror, grant) is not markers_announced

    fill_with_marker(mirror, 12)

    assert has_no_late_markers(mirror, grant)


def test_owner_with_markers_whose_lease_state_was_lost_counts_as_crashed_with_markers_in_flight() -> None:
    mirror = owned(generation=1, clean=True, producer=replace(SEEN, coordinator_epoch=coordinator_epoch_for(7)))
    assert not settled(mirror)

    fill_with_marker(mirror, 10)

    assert settled(mirror)


def test_owner_with_records_only_whose_lease_state_was_lost_counts_as_crashed_with_markers_in_flight() -> None:
    mirror = owned(generation=1, clean=True, producer=ProducerState(epoch=0, last_sequence=9))
    assert not settled(mirror)

    fill_with_marker(mirror, 10)

    assert settled(mirror)


def test_first_hold_after_a_seeded_head_is_settled_although_it_raises_the_epoch() -> None:
    mirror = owned(generation=1, clean=True, producer=ProducerState(epoch=0, last_sequence=41), start=10)

    assert mirror.producer_state.must_raise
    assert settled(mirror)
