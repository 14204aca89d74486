"""Appends and markers without a response, which may still be written late; without brokers."""

import pytest

from linkengine.batches.steps import Fill
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.partition_state import log_end_query
from linkengine.copyjob.producer_state import Unacknowledged
from linkengine.copyjob.values import LostMarker
from linkengine.domain.states import GapReason
from tests.linkengine.copyjob.partitions import BOUND, SEEN, UNTIL, filling, log_end, owned, planned, sent


def test_unacknowledged_append_counts_as_in_flight_until_a_later_append_is_acknowledged() -> None:
    mirror = owned(generation=9, clean=True)
    sent(mirror)

    mirror.interrupt(retry_at=0.0)
    mirror.resumed(log_end(), now_ms=0)

    assert mirror.is_drained
    assert mirror.late_appends
    mirror.acknowledged(sent(mirror))
    assert not mirror.late_appends


def test_gap_fill_at_the_offset_of_an_unacknowledged_append_raises_the_epoch() -> None:
    """The source has compacted the record since. The marker takes its offset but not its sequence, so it could be appended."""
    mirror = owned(generation=9, clean=True)
    sent(mirror)
    mirror.interrupt(retry_at=0.0)
    mirror.resumed(log_end(), now_ms=0)
    mirror.planned([Fill(10, 12, GapReason.COMPACTED)], Buffer())

    fill = mirror.send_fill(Fill(10, 12, GapReason.COMPACTED), most=100)
    mirror.filled(now_ms=0)

    assert (fill.epoch, fill.count) == (SEEN.epoch + 1, 1)
    assert not mirror.late_appends
    assert mirror.send_fill(Fill(11, 12, GapReason.COMPACTED), most=100).epoch == fill.epoch
    assert mirror.producer_state.append(1) == (fill.epoch, 0)


def test_later_batches_of_a_lost_pipeline_stay_in_flight_when_the_first_is_sent_again() -> None:
    """The second batch has the next sequence then: behind a marker at its offset it would be appended at a wrong offset."""
    mirror = owned(generation=9, clean=True)
    for step in planned(mirror, 10, 12, 14):
        mirror.send_append(step)
    mirror.interrupt(retry_at=0.0)
    mirror.resumed(log_end(), now_ms=0)

    mirror.acknowledged(sent(mirror))
    gap = Fill(12, 14, GapReason.COMPACTED)
    mirror.planned([gap], Buffer())
    fill = mirror.send_fill(gap, most=100)

    assert mirror.late_appends  # so the lease is not released cleanly either
    assert (fill.epoch, fill.count) == (SEEN.epoch + 1, 1)


@pytest.mark.parametrize(("end", "raised"), [(10, 4), (11, 4), (13, 3)])
def test_next_marker_raises_the_epoch_unless_all_lost_markers_are_in_the_log(end: int, raised: int) -> None:
    mirror = owned(generation=9, clean=True)
    mirror.planned([Fill(10, 13, GapReason.ABORTED)], Buffer())
    mirror.send_fill(Fill(10, 13, GapReason.ABORTED), most=100)
    mirror.lost_marker = LostMarker(broker=1, until=0.0)

    mirror.interrupt(retry_at=0.0)
    mirror.resumed(log_end(end=end), now_ms=0)

    assert mirror.producer_state.marker_epoch() == raised


def test_resume_waits_for_markers_in_flight_whatever_ended_the_attempt() -> None:
    mirror = owned(generation=9, clean=True)
    filling(mirror, late_until=UNTIL)

    mirror.interrupt(retry_at=0.0)  # the connection for data was lost, not that of the markers

    lost = log_end_query(mirror).lost_marker
    assert lost is not None
    assert lost.until == UNTIL


@pytest.mark.parametrize("interrupted", [False, True], ids=["in flight", "being waited for"])
def test_markers_without_a_response_are_remembered_after_the_lease_is_lost(interrupted: bool) -> None:
    mirror = owned(generation=9, clean=True)
    filling(mirror, late_until=UNTIL)
    if interrupted:
        mirror.interrupt(retry_at=0.0)

    mirror.end_hold()

    assert mirror.lost_marker is not None  # hence no clean release, and no resume before they can no longer be written


def test_late_response_to_markers_ends_the_wait_for_them() -> None:
    mirror = owned(generation=9, clean=True)
    fill = filling(mirror, late_until=UNTIL)
    mirror.interrupt(retry_at=0.0)

    mirror.responded(fill)

    assert mirror.lost_marker is not None
    assert mirror.lost_marker.until == 0.0


def test_acknowledged_markers_are_not_waited_for() -> None:
    mirror = owned(generation=9, clean=True)
    mirror.responded(filling(mirror, late_until=UNTIL))

    mirror.interrupt(retry_at=0.0)  # the broker refused some of them

    assert mirror.lost_marker is None


def test_appends_are_unacknowledged_also_with_transactional_fills() -> None:
    mirror = owned(generation=9, clean=True, transactions=BOUND)
    sent(mirror)

    mirror.interrupt(retry_at=0.0)

    assert log_end_query(mirror).unacknowledged == Unacknowledged(offset=10, sequence=None, producer_id=5)


def test_end_releases_the_chunks_that_a_stop_kept_for_a_marker_in_flight() -> None:
    mirror, buffer = owned(generation=9, clean=True), Buffer()
    mirror.planned([Fill(10, 11, GapReason.ABORTED), Fill(11, 99, GapReason.ABORTED)], buffer)
    mirror.send_fill(Fill(10, 11, GapReason.ABORTED), most=1)
    assert mirror.stop() == []
    assert mirror.filled(now_ms=0) is None

    assert [chunk.buffer for chunk in mirror.end()] == [buffer]
    assert mirror.end() == []
