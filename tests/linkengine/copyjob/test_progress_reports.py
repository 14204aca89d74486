"""Progress reports of a partition, and the read position that it hands over, without brokers."""

from linkengine.copyjob.progress_reports import progress_of
from linkengine.copyjob.values import LogTail, SourceOrigin
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import UNTIL, filling, log_end, owned, served


def test_the_read_position_is_remembered_when_the_leader_changes_or_the_attempt_ends() -> None:
    left, interrupted = (served(owned(generation=2, clean=True), epoch=7) for _ in range(2))
    left.leave_origin()
    interrupted.interrupt(retry_at=0.0)
    assert left.read_position.seen == interrupted.read_position.seen == (7, 10)


def test_the_epoch_of_a_leader_that_has_not_responded_since_the_resume_is_not_reported() -> None:
    # the previous owner may have read the mirror's last records from a newer leader
    partition = owned(generation=2, clean=True)
    partition.origin = SourceOrigin(Leader(broker=0, epoch=7), b"topic")
    assert progress_of(partition, now_ms=1).source_epoch is None
    partition.leave_origin()
    assert partition.read_position.seen is None


def test_the_mirrors_end_is_reported_as_unproven_while_the_tail_check_is_pending() -> None:
    partition = owned(generation=2, clean=True)
    partition.unchecked_tail = LogTail(start=0, end=10, records={}, markers=frozenset())

    waiting = progress_of(partition, now_ms=1)
    partition.proven(SourceOrigin(Leader(broker=0, epoch=7), b"topic"))
    proven = progress_of(partition, now_ms=2)

    assert (waiting.mirror_end, waiting.unproven_end) == (None, 10)
    assert (proven.mirror_end, proven.unproven_end) == (10, None)


def test_a_stopped_partition_reports_the_last_source_end_with_the_time_it_was_seen() -> None:
    partition = served(owned(generation=2, clean=True), epoch=7)
    responded_ms = partition.counters.source_seen_ms
    assert responded_ms is not None
    partition.counters.unchanged(responded_ms + 500)
    partition.counters.unchanged(responded_ms + 400)  # responses may be processed late
    partition.stop()

    progress = progress_of(partition, now_ms=responded_ms + 9_000)

    assert (progress.source_end, progress.source_seen_at_ms) == (partition.counters.source_end, responded_ms + 500)
    assert progress.topic_ids == partition.assignment.topic_ids


def test_an_end_is_handed_over_only_if_it_was_reached() -> None:
    """The broker refused the markers: no request is in flight, none can be appended late, and the mirror ends before them."""
    partition = served(owned(generation=9, clean=True), epoch=7)
    partition.responded(filling(partition, late_until=UNTIL))

    partition.interrupt(retry_at=0.0)

    # hence a clean release
    assert (partition.is_drained, partition.lost_marker, bool(partition.late_appends)) == (True, None, False)
    assert partition.handed_over is None
    partition.resumed(log_end(), now_ms=0)
    assert partition.handed_over == (7, 10)
