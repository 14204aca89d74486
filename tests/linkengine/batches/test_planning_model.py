from hypothesis import given, settings
from hypothesis import strategies as st

from linkengine.batches.patch import next_sequence, patch_for_append
from linkengine.batches.planning import Append, Fill, SegmentPlanner, Step, is_contradictory
from linkengine.batches.view import CorruptBatchError
from linkengine.domain.states import GapReason
from tests.effort import tries
from tests.linkengine.batches.batchlog import read_payload
from tests.linkengine.batches.sourcelog import Shown, SourceLog, source_logs

SETTINGS = settings(max_examples=tries(60), deadline=None)
PRODUCER_ID = (1 << 62) + 7


def mirrored(steps: list[Step]) -> dict[int, Shown | GapReason]:
    """Write the steps to a mirror that refuses what a broker would refuse; return what its offsets show."""
    mirror: dict[int, Shown | GapReason] = {}
    sequence = (1 << 31) - 3
    for step in steps:
        assert step.start not in mirror
        if isinstance(step, Fill):
            mirror.update(dict.fromkeys(range(step.start, step.end), step.reason))
            continue
        patch_for_append(step.payload, producer_id=PRODUCER_ID, producer_epoch=4, base_sequence=sequence)
        read = read_payload(step.payload)
        assert read.checksum_right
        assert (read.base_offset, read.producer) == (0, (PRODUCER_ID, 4, sequence))
        assert read.attributes <= 4
        assert step.count == step.records == len(read.records) == read.last_offset_delta + 1
        assert step.max_timestamp == read.max_timestamp
        mirror.update({step.base_offset + delta: (record, read.attributes) for delta, record in enumerate(read.records)})
        sequence = next_sequence(sequence, step.count)
    return mirror


def planned(log: SourceLog, next_offset: int, *, high_end: int, coalesce_bytes: int, cut: int | None = None) -> list[Step]:
    buffer, aborted = log.response(next_offset)
    return SegmentPlanner().plan(
        memoryview(buffer)[:cut], next_offset=next_offset, aborted=aborted, high_end=high_end, coalesce_bytes=coalesce_bytes
    )


def expected(log: SourceLog, start: int, end: int) -> dict[int, Shown | GapReason]:
    return {offset: log.shows[offset] for offset in range(start, end)}


@SETTINGS
@given(source_logs(), st.data(), st.sampled_from([1, 200, 1 << 20]))
def test_every_offset_of_the_mirror_shows_what_the_source_shows(
    log: SourceLog, data: st.DataObject, coalesce_bytes: int
) -> None:
    next_offset = data.draw(st.integers(0, log.end))

    steps = planned(log, next_offset, high_end=log.end, coalesce_bytes=coalesce_bytes)

    assert mirrored(steps) == expected(log, next_offset, log.end)


@SETTINGS
@given(source_logs(), st.data())
def test_nothing_at_or_beyond_the_high_end_is_planned(log: SourceLog, data: st.DataObject) -> None:
    next_offset = data.draw(st.integers(0, log.end))
    high_end = data.draw(st.integers(0, log.end + 3))

    steps = planned(log, next_offset, high_end=high_end, coalesce_bytes=1 << 20)

    assert mirrored(steps) == expected(log, next_offset, min(high_end, log.end))


@SETTINGS
@given(source_logs(), st.data())
def test_undamaged_response_does_not_contradict_its_aborted_transactions(log: SourceLog, data: st.DataObject) -> None:
    buffer, aborted = log.response(data.draw(st.integers(0, log.end)))
    cut = data.draw(st.integers(1, len(buffer)))

    assert not is_contradictory(memoryview(buffer)[:cut], aborted)


@SETTINGS
@given(source_logs(), st.data())
def test_a_response_cut_off_anywhere_is_continued_by_the_next_one(log: SourceLog, data: st.DataObject) -> None:
    mirror: dict[int, Shown | GapReason] = {}
    next_offset, end = 0, log.end
    while next_offset < end:
        whole = len(log.response(next_offset)[0])
        steps = planned(log, next_offset, high_end=log.end, coalesce_bytes=1 << 20, cut=data.draw(st.integers(1, whole)))
        steps = steps or planned(log, next_offset, high_end=log.end, coalesce_bytes=1 << 20)  # a broker sends a whole batch
        mirror.update(mirrored(steps))
        next_offset = steps[-1].end

    assert mirror == expected(log, 0, end)


@SETTINGS
@given(source_logs(), st.data())
def test_a_damaged_response_is_refused_or_stays_detectable_by_the_destination(log: SourceLog, data: st.DataObject) -> None:
    buffer, aborted = log.response(0)
    at = data.draw(st.integers(0, len(buffer) - 1))
    buffer[at] ^= 1 << data.draw(st.integers(0, 7))

    try:
        steps = SegmentPlanner().plan(memoryview(buffer), next_offset=0, aborted=aborted, high_end=log.end)
    except CorruptBatchError:
        return
    for step in steps:
        if isinstance(step, Append):
            patch_for_append(step.payload, producer_id=1, producer_epoch=0, base_sequence=0)
        elif (
            step.reason is not GapReason.COMPACTED
        ):  # a damaged base offset, outside all checksums, causes that too (neighbours)
            assert {log.shows[offset] for offset in range(step.start, step.end)} == {step.reason}
