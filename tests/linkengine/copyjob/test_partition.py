"""The rules of one partition, without brokers: when markers may be sent, and what counts as still on its way."""

from dataclasses import replace

import pytest

from linkengine.batches.fillers import dense_filler
from linkengine.batches.steps import Append, Fill
from linkengine.copyjob.asking import REMEMBERED_MS, is_held_up, is_settled, tail_query
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.doubts import Doubt
from linkengine.copyjob.observing import progress_of
from linkengine.copyjob.partition import OVERLAP_S, MirrorPartition
from linkengine.copyjob.pieces import FillInFlight, Origin
from linkengine.copyjob.proving import Stretch
from linkengine.copyjob.tails import LostMarker, Tail
from linkengine.domain.leases import Grant, coordinator_epoch_for
from linkengine.domain.states import GapReason
from linkengine.kafka.producers import ProducerState
from linkengine.kafka.topicviews import Leader
from linkengine.kafka.transactions import TransactionalProducer
from tests.linkengine.copyjob.partitions import partition

UNTIL = 1_000.0
NOW_MS = 1_700_000_000_000
SEEN = ProducerState(epoch=3, last_sequence=9, coordinator_epoch=8)


BOUND = TransactionalProducer(producer_id=5, epoch=3)


def tail(*, start: int = 0, end: int = 10, producer: ProducerState = SEEN) -> Tail:
    leader = Leader(broker=0, epoch=1)
    return Tail(leader=leader, topic_id=bytes(16), start=start, end=end, producer=producer, producer_id=1 << 62)


def owned(
    *,
    generation: int,
    clean: bool,
    producer: ProducerState = SEEN,
    start: int = 0,
    transactions: TransactionalProducer | None = None,
) -> MirrorPartition:
    one = partition()
    one.granted(Grant(key=one.key, generation=generation, clean=clean, valid_until=UNTIL))
    one.resumed(replace(tail(start=start, producer=producer), transactions=transactions), now_ms=0)
    return one


def sent(one: MirrorPartition) -> Append:
    (step,) = planned(one, 10)
    one.send_append(step)
    return step


def planned(one: MirrorPartition, *offsets: int) -> list[Append]:
    """One stretch of batches with two records each."""
    batch = dense_filler(2, 0)
    steps = [Append(start, 2, memoryview(bytearray(batch)), records=2, max_timestamp=0) for start in offsets]
    one.planned([*steps], Buffer())
    return steps


def assert_goes_alone(one: MirrorPartition, first: Append, second: Append) -> None:
    """Send the first append, and see that the second one waits for its answer."""
    one.send_append(first)
    assert one.next_step() is None
    one.acknowledged(first)
    assert one.next_step() is second


def now_ms() -> int:
    return NOW_MS


def settled(one: MirrorPartition) -> bool:
    assert one.grant is not None
    return is_settled(one, one.grant)


def mark(one: MirrorPartition, offset: int) -> None:
    """A marker is sent and verified."""
    step = Fill(offset, offset + 1, GapReason.ABORTED)
    one.planned([step], Buffer())
    one.send_fill(step, most=100)
    one.filled(now_ms=0)


def test_nothing_follows_the_first_append_of_an_attempt_before_its_answer() -> None:
    one = owned(generation=9, clean=True)
    first, second, third = planned(one, 10, 12, 14)

    assert_goes_alone(one, first, second)
    one.send_append(second)
    assert one.next_step() is third


def test_nor_the_first_one_after_a_pause_in_which_the_leader_may_have_forgotten_us() -> None:
    one = owned(generation=9, clean=True)
    one.acknowledged(sent(one))
    first, second = planned(one, 12, 14)

    assert_goes_alone(one, first, second)


def test_the_next_attempt_begins_alone_again() -> None:
    one = owned(generation=9, clean=True)
    first, second, _ = planned(one, 10, 12, 14)
    one.send_append(first)
    one.acknowledged(first)
    one.send_append(second)

    one.interrupt(retry_at=0.0)
    one.resumed(tail(end=12), now_ms=0)
    again, _ = planned(one, 12, 14)
    one.send_append(again)

    assert one.next_step() is None


@pytest.mark.parametrize(
    ("generation", "clean"), [(9, False), (1, True), (4, True)], ids=["expired lease", "no memory", "memory lost and back"]
)
def test_markers_wait_until_no_former_owner_can_believe_in_its_lease(generation: int, clean: bool) -> None:
    one = owned(generation=generation, clean=clean)

    assert not one.may_fill(UNTIL)
    assert one.may_fill(UNTIL + OVERLAP_S)


def test_after_that_wait_the_end_is_read_again_before_the_first_marker() -> None:
    one = owned(generation=9, clean=False)

    assert not one.must_look_again(UNTIL)
    assert one.must_look_again(UNTIL + OVERLAP_S)
    assert not one.must_look_again(UNTIL + OVERLAP_S)
    assert not owned(generation=9, clean=True).must_look_again(UNTIL + OVERLAP_S)


@pytest.mark.parametrize(
    ("written_ms", "producer", "held_up"),
    [(NOW_MS, SEEN, False), (NOW_MS - REMEMBERED_MS - 1, SEEN, True), (NOW_MS, ProducerState(), True)],
    ids=["of today", "of an archive", "for a leader that knows nothing"],
)
@pytest.mark.parametrize("transactions", [None, BOUND], ids=["markers", "transactions"])
def test_records_that_two_owners_could_write_twice_wait_like_markers(
    written_ms: int, producer: ProducerState, held_up: bool, transactions: TransactionalProducer | None
) -> None:
    """A leader forgets producers by the time of their records: it would take a batch from a former owner and from us."""
    same = {"generation": 9, "producer": producer, "transactions": transactions}
    clean, unclean = (owned(clean=clean, **same) for clean in (True, False))
    step = replace(planned(unclean, 10)[0], max_timestamp=written_ms)

    assert is_held_up(unclean, step, now_ms=now_ms) is held_up
    assert not is_held_up(clean, step, now_ms=now_ms)
    assert unclean.must_look_again(UNTIL + OVERLAP_S)
    assert not is_held_up(unclean, step, now_ms=now_ms)


def test_after_a_clean_hand_over_markers_may_be_sent_at_once() -> None:
    assert owned(generation=9, clean=True).may_fill(0.0)
    assert owned(generation=1, clean=True, producer=ProducerState()).may_fill(0.0)


def test_a_grant_that_may_come_from_a_lost_memory_is_not_trusted_to_be_clean() -> None:
    for generation, trusted in ((1, False), (2, True)):
        one = partition()
        one.granted(Grant(key=one.key, generation=generation, clean=True, valid_until=UNTIL))
        assert tail_query(one).clean is trusted


@pytest.mark.parametrize(("epoch", "relied_on"), [(5, True), (6, False), (3, False)], ids=["same", "newer", "set back"])
def test_an_end_that_was_left_is_relied_on_under_the_leader_it_was_read_from(epoch: int, relied_on: bool) -> None:
    one = partition()
    one.origin = Origin(Leader(broker=1, epoch=epoch), b"t")
    one.granted(Grant(key=one.key, generation=9, clean=True, valid_until=UNTIL, seen=(5, 1_000)))

    query = tail_query(one)

    assert (query.expected_end, query.prove) == ((1_000, False) if relied_on else (None, True))
    assert query.left_end == query.expected_end


@pytest.mark.parametrize("armed", [True, False], ids=["with markers", "with data only"])
def test_what_a_dead_owner_left_on_its_way_is_settled_by_the_first_marker_alone(armed: bool) -> None:
    one = partition()
    grant = Grant(key=one.key, generation=9, clean=False, armed=armed, valid_until=UNTIL)
    one.granted(grant)
    assert is_settled(one, grant) is not armed  # its slice may end before the mirror was read
    one.resumed(tail(), now_ms=0)
    one.acknowledged(sent(one))
    assert is_settled(one, grant) is not armed

    mark(one, 12)

    assert is_settled(one, grant)


def test_an_owner_that_the_lease_has_forgotten_is_taken_for_one_that_died_with_markers_on_their_way() -> None:
    one = owned(generation=1, clean=True, producer=replace(SEEN, coordinator_epoch=coordinator_epoch_for(7)))
    assert not settled(one)

    mark(one, 10)

    assert settled(one)


def test_so_is_one_that_wrote_records_and_no_marker_before_it_was_forgotten() -> None:
    one = owned(generation=1, clean=True, producer=ProducerState(epoch=0, last_sequence=9))
    assert not settled(one)

    mark(one, 10)

    assert settled(one)


def test_a_first_hold_after_a_seeded_head_is_settled_although_its_first_marker_raises_the_epoch() -> None:
    one = owned(generation=1, clean=True, producer=ProducerState(epoch=0, last_sequence=41), start=10)

    assert one.writer.must_raise
    assert settled(one)


def test_data_without_an_answer_is_on_its_way_until_later_data_is_acknowledged() -> None:
    one = owned(generation=9, clean=True)
    sent(one)

    one.interrupt(retry_at=0.0)
    one.resumed(tail(), now_ms=0)

    assert one.quiet
    assert one.loose_appends
    one.acknowledged(sent(one))
    assert not one.loose_appends


def test_a_gap_where_a_record_was_sent_shuts_that_record_out_should_it_come_late() -> None:
    """The source has compacted it away since. The gap's marker takes its offset, and would leave its sequence free."""
    one = owned(generation=9, clean=True)
    sent(one)
    one.interrupt(retry_at=0.0)
    one.resumed(tail(), now_ms=0)
    one.planned([Fill(10, 12, GapReason.COMPACTED)], Buffer())

    fill = one.send_fill(Fill(10, 12, GapReason.COMPACTED), most=100)
    one.filled(now_ms=0)

    assert (fill.epoch, fill.count) == (SEEN.epoch + 1, 1)
    assert not one.loose_appends
    assert one.send_fill(Fill(11, 12, GapReason.COMPACTED), most=100).epoch == fill.epoch
    assert one.writer.append(1) == (fill.epoch, 0)


def test_later_batches_of_a_pipeline_that_was_lost_stay_loose_when_its_first_one_is_written_again() -> None:
    """The second one carries the sequence that is next then: behind a marker in its place it would fit one place too far."""
    one = owned(generation=9, clean=True)
    for step in planned(one, 10, 12, 14):
        one.send_append(step)
    one.interrupt(retry_at=0.0)
    one.resumed(tail(), now_ms=0)

    one.acknowledged(sent(one))
    gap = Fill(12, 14, GapReason.COMPACTED)
    one.planned([gap], Buffer())
    fill = one.send_fill(gap, most=100)

    assert one.loose_appends  # no clean release either
    assert (fill.epoch, fill.count) == (SEEN.epoch + 1, 1)


@pytest.mark.parametrize(("end", "raised"), [(10, 4), (11, 4), (13, 3)])
def test_after_a_lost_marker_the_next_one_shuts_it_out_unless_all_of_it_is_there(end: int, raised: int) -> None:
    one = owned(generation=9, clean=True)
    one.planned([Fill(10, 13, GapReason.ABORTED)], Buffer())
    one.send_fill(Fill(10, 13, GapReason.ABORTED), most=100)
    one.lost_marker = LostMarker(leader_epoch=1, until=0.0)

    one.interrupt(retry_at=0.0)
    one.resumed(tail(end=end), now_ms=0)

    assert one.writer.marker_epoch() == raised


def filling(one: MirrorPartition, *, late_until: float) -> FillInFlight:
    step = Fill(10, 13, GapReason.ABORTED)
    one.planned([step], Buffer())
    return one.send_fill(step, most=100, late_until=late_until)


def test_markers_in_flight_are_outwaited_whatever_ended_the_attempt() -> None:
    one = owned(generation=9, clean=True)
    filling(one, late_until=UNTIL)

    one.interrupt(retry_at=0.0)  # the connection for data was lost, not that of the markers

    lost = tail_query(one).lost_marker
    assert lost is not None
    assert lost.until == UNTIL


@pytest.mark.parametrize("outwaited", [False, True], ids=["in flight", "being outwaited"])
def test_markers_without_an_answer_are_remembered_beyond_the_lease(outwaited: bool) -> None:
    one = owned(generation=9, clean=True)
    filling(one, late_until=UNTIL)
    if outwaited:
        one.interrupt(retry_at=0.0)

    one.dispossessed()

    assert one.lost_marker is not None  # hence no clean release, and no reading of the end before they are outwaited


def test_an_answer_that_comes_after_the_attempt_ends_the_wait() -> None:
    one = owned(generation=9, clean=True)
    fill = filling(one, late_until=UNTIL)
    one.interrupt(retry_at=0.0)

    one.answered(fill)

    assert one.lost_marker is not None
    assert one.lost_marker.until == 0.0


def test_answered_markers_are_not_waited_for() -> None:
    one = owned(generation=9, clean=True)
    one.answered(filling(one, late_until=UNTIL))

    one.interrupt(retry_at=0.0)  # the broker refused some of them

    assert one.lost_marker is None


def test_data_without_an_answer_is_in_doubt_also_where_transactions_fill_the_gaps() -> None:
    one = owned(generation=9, clean=True, transactions=BOUND)
    sent(one)

    one.interrupt(retry_at=0.0)

    assert tail_query(one).doubt == Doubt(offset=10, sequence=None, producer_id=5)


def test_what_a_stop_kept_for_the_answer_of_a_marker_is_let_go_at_the_end() -> None:
    one, buffer = owned(generation=9, clean=True), Buffer()
    one.planned([Fill(10, 11, GapReason.ABORTED), Fill(11, 99, GapReason.ABORTED)], buffer)
    one.send_fill(Fill(10, 11, GapReason.ABORTED), most=1)
    assert one.stop() == []
    assert one.filled(now_ms=0) is None

    assert [chunk.buffer for chunk in one.end()] == [buffer]
    assert one.end() == []


def served(one: MirrorPartition, *, epoch: int) -> MirrorPartition:
    one.origin = Origin(Leader(broker=0, epoch=epoch), b"topic")
    one.source_answered(start=0, end=10, high_watermark=10, now_ms=1)
    return one


def test_what_was_read_under_a_leader_is_remembered_when_it_is_left_or_the_attempt_ends() -> None:
    left, interrupted = (served(owned(generation=2, clean=True), epoch=7) for _ in range(2))
    left.leave_origin()
    interrupted.interrupt(retry_at=0.0)
    assert left.past.seen == interrupted.past.seen == (7, 10)


def test_a_leader_that_has_not_served_since_the_mirror_was_looked_at_vouches_for_nothing() -> None:
    one = owned(generation=2, clean=True)  # whoever copied before may have read the mirror's end from a newer leader
    one.origin = Origin(Leader(broker=0, epoch=7), b"topic")
    assert progress_of(one, now_ms=1).source_epoch is None
    one.leave_origin()
    assert one.past.seen is None


def test_an_end_that_is_still_to_be_compared_is_not_told_as_the_mirrors() -> None:
    one = owned(generation=2, clean=True)
    one.to_prove = Stretch(start=0, end=10, records={}, markers=frozenset())

    waiting = progress_of(one, now_ms=1)
    one.proven(Origin(Leader(broker=0, epoch=7), b"topic"))
    proven = progress_of(one, now_ms=2)

    assert (waiting.mirror_end, waiting.unproven_end) == (None, 10)
    assert (proven.mirror_end, proven.unproven_end) == (10, None)


def test_the_end_of_a_source_that_is_read_no_more_is_told_with_the_time_at_which_it_was_seen() -> None:
    one = served(owned(generation=2, clean=True), epoch=7)
    heard_ms = one.account.source_heard_ms
    assert heard_ms is not None
    one.account.unchanged(heard_ms + 500)
    one.account.unchanged(heard_ms + 400)  # a late word
    one.stop()

    told = progress_of(one, now_ms=heard_ms + 9_000)

    assert (told.source_end, told.source_seen_at_ms) == (one.account.source_end, heard_ms + 500)
    assert told.life == one.assignment.life


def test_an_end_is_handed_over_only_where_it_was_reached() -> None:
    """The broker refused the markers: all was answered, nothing can come late, and the mirror ends before them."""
    one = served(owned(generation=9, clean=True), epoch=7)
    one.answered(filling(one, late_until=UNTIL))

    one.interrupt(retry_at=0.0)

    assert (one.quiet, one.lost_marker, bool(one.loose_appends)) == (True, None, False)  # hence a clean release
    assert one.handed_over is None
    one.resumed(tail(), now_ms=0)
    assert one.handed_over == (7, 10)
