"""What one partition tells of itself, and what it hands over, without brokers."""

from linkengine.copyjob.progress_reports import progress_of
from linkengine.copyjob.resume.tail_check import LogTail
from linkengine.copyjob.values import SourceOrigin
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import UNTIL, filling, log_end, owned, served


def test_what_was_read_under_a_leader_is_remembered_when_it_is_left_or_the_attempt_ends() -> None:
    left, interrupted = (served(owned(generation=2, clean=True), epoch=7) for _ in range(2))
    left.leave_origin()
    interrupted.interrupt(retry_at=0.0)
    assert left.read_position.seen == interrupted.read_position.seen == (7, 10)


def test_a_leader_that_has_not_served_since_the_mirror_was_looked_at_vouches_for_nothing() -> None:
    one = owned(generation=2, clean=True)  # whoever copied before may have read the mirror's end from a newer leader
    one.origin = SourceOrigin(Leader(broker=0, epoch=7), b"topic")
    assert progress_of(one, now_ms=1).source_epoch is None
    one.leave_origin()
    assert one.read_position.seen is None


def test_an_end_that_is_still_to_be_compared_is_not_told_as_the_mirrors() -> None:
    one = owned(generation=2, clean=True)
    one.unchecked_tail = LogTail(start=0, end=10, records={}, markers=frozenset())

    waiting = progress_of(one, now_ms=1)
    one.proven(SourceOrigin(Leader(broker=0, epoch=7), b"topic"))
    proven = progress_of(one, now_ms=2)

    assert (waiting.mirror_end, waiting.unproven_end) == (None, 10)
    assert (proven.mirror_end, proven.unproven_end) == (10, None)


def test_the_end_of_a_source_that_is_read_no_more_is_told_with_the_time_at_which_it_was_seen() -> None:
    one = served(owned(generation=2, clean=True), epoch=7)
    responded_ms = one.counters.source_seen_ms
    assert responded_ms is not None
    one.counters.unchanged(responded_ms + 500)
    one.counters.unchanged(responded_ms + 400)  # a late word
    one.stop()

    told = progress_of(one, now_ms=responded_ms + 9_000)

    assert (told.source_end, told.source_seen_at_ms) == (one.counters.source_end, responded_ms + 500)
    assert told.topic_ids == one.assignment.topic_ids


def test_an_end_is_handed_over_only_where_it_was_reached() -> None:
    """The broker refused the markers: all was answered, nothing can come late, and the mirror ends before them."""
    one = served(owned(generation=9, clean=True), epoch=7)
    one.answered(filling(one, late_until=UNTIL))

    one.interrupt(retry_at=0.0)

    assert (one.quiet, one.lost_marker, bool(one.late_appends)) == (True, None, False)  # hence a clean release
    assert one.handed_over is None
    one.resumed(log_end(), now_ms=0)
    assert one.handed_over == (7, 10)
