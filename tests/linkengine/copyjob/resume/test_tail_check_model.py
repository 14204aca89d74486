"""The tail check on generated logs: a correct mirror passes, a foreign batch is found."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from linkengine.batches.patch import patch_for_append
from linkengine.batches.planning import Append, SegmentPlanner
from linkengine.batches.view import read_view
from linkengine.copyjob.resume import tail_check
from linkengine.copyjob.resume.tail_check import Difference, first_difference, read_log_tail
from linkengine.domain.states import GapReason
from tests.linkengine.batches.batchlog import TRANSACTIONAL, Rec, dense, marker
from tests.linkengine.batches.sourcelog import ABORT, SourceLog, source_logs

OWN_ID, OTHER_ID = 1 << 62, 99
TOPIC = ("t", bytes(16), 0)
CONNECTION: Any = SimpleNamespace()  # the connection, which is not used
SETTINGS = settings(max_examples=80, deadline=None)


def mirror_of(log: SourceLog, end: int) -> list[bytes]:
    """Return the mirror's batches below ``end``, as a broker stores what the copy sends."""
    buffer, aborted = log.response(0)
    batches: list[bytes] = []
    for step in SegmentPlanner().plan(memoryview(buffer), next_offset=0, aborted=aborted, high_end=end):
        if isinstance(step, Append):
            patch_for_append(step.payload, producer_id=OWN_ID, producer_epoch=0, base_sequence=0)
            batches.append(step.base_offset.to_bytes(8, "big") + bytes(step.payload[8:]))
        else:
            batches += [marker(offset, ABORT, OWN_ID).encode() for offset in range(step.start, step.end)]
    return batches


def difference(
    log: SourceLog, mirror: list[bytes], *, end: int, aborted: tuple[tuple[int, int], ...] = ()
) -> Difference | None:
    def read_source(*_: object, offset: int, **__: object) -> tuple[int, tuple[tuple[int, int], ...], memoryview]:
        buffer, entries = log.response(offset)
        return 0, tuple((entry.producer_id, entry.first_offset) for entry in entries), memoryview(bytes(buffer))

    def read_mirror(*_: object, offset: int, **__: object) -> tuple[int, tuple[tuple[int, int], ...], memoryview]:
        return 0, aborted, memoryview(b"".join(batch for batch in mirror if _end(batch) > offset))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail_check, "read_with_aborted", read_mirror)
        patch.setattr(tail_check, "read_committed", read_source)
        tail = read_log_tail(
            CONNECTION, topic=TOPIC, leader_epoch=0, bounds=(0, end), producer_id=OWN_ID, local_start=lambda: 0
        )
        return first_difference(
            CONNECTION, topic=TOPIC, leader_epoch=0, bounds=(0, log.end), tail=tail, compacted=lambda: False
        )


def _end(batch: bytes) -> int:
    view = read_view(batch)
    assert view is not None
    return view.next_offset


@SETTINGS
@given(source_logs(), st.data())
def test_correct_mirror_has_no_difference(log: SourceLog, data: st.DataObject) -> None:
    end = data.draw(st.integers(1, log.end))

    assert difference(log, mirror_of(log, end), end=end) is None


@SETTINGS
@given(source_logs(), st.data())
def test_foreign_batch_at_the_offset_of_a_record_is_found_whether_visible_or_not(log: SourceLog, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, log.end - 1))
    kind = data.draw(st.sampled_from(["record", "aborted", "marker"]))
    assume(not isinstance(log.shows[end], GapReason))
    record = dense(end, [Rec(value=b"foreign")], producer_id=OTHER_ID, bits=TRANSACTIONAL if kind == "aborted" else 0)
    batch = marker(end, ABORT, OTHER_ID) if kind == "marker" else record
    entries = ((OTHER_ID, end),) if kind == "aborted" else ()

    found = difference(log, [*mirror_of(log, end), batch.encode()], end=end + 1, aborted=entries)

    assert found is not None
    assert found.offset == end
