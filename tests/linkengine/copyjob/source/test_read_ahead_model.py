"""Reading ahead copies what a single reader copies: any log, any order of responses, errors and lost connections."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from linkengine.batches.planning import AbortedTransaction, SegmentPlanner
from linkengine.batches.steps import Append, Fill, Step
from linkengine.copyjob.buffers import AHEAD_UNIT, AheadMemory, Buffer
from linkengine.copyjob.pacing import Bandwidth
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source import log_pieces, read_ahead
from linkengine.copyjob.source.fetch_planner import FetchEvents, FetchPlanner
from linkengine.copyjob.source.read_ahead import ReadAhead, Subject
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.kafka.requests import FetchedPartition, FetchLimits, FetchPosition
from linkengine.kafka.topicviews import Leader
from tests.linkengine.batches.batchlog import TRANSACTIONAL, Batch, Rec, dense, log_of, marker
from tests.linkengine.copyjob.connections import TOPIC, FakeConnection
from tests.linkengine.copyjob.partitions import NOWHERE, partition, unexpected

COMMIT, ABORT = 1, 0
NOT_LEADER = 6


class Log:
    """A source partition in memory that serves Fetch as a leader does (KIP-74, KIP-98)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # first offset, end, bytes
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker
        self.end = 0
        self._open: dict[int, int] = {}

    def add(self, batch: Batch) -> None:
        self.batches.append((batch.base_offset, batch.end, batch.encode()))
        self.end = batch.end

    def write(self, kind: str, producer: int, count: int, size: int) -> None:
        records = [Rec(value=b"%d " % (self.end + number) + b"x" * size) for number in range(count)]
        if kind == "plain":
            self.add(dense(self.end, records))
        elif kind == "hole":
            self.end += count
        elif kind == "emptied":
            self.add(Batch(self.end, {}, last_offset_delta=count - 1))
        elif kind == "transactional":
            self._open.setdefault(producer, self.end)
            self.add(dense(self.end, records, bits=TRANSACTIONAL, producer_id=producer))
        else:
            self.finish(producer, kind)

    def finish(self, producer: int, kind: str) -> None:
        first = self._open.pop(producer, None)
        if first is not None and kind == "abort":
            self.aborted.append((producer, first, self.end))
        if first is not None:
            self.add(marker(self.end, ABORT if kind == "abort" else COMMIT, producer))

    def close(self) -> None:
        for producer in list(self._open):
            self.finish(producer, "commit")
        self.add(dense(self.end, [Rec(value=b"last")]))

    def fetch(self, position: FetchPosition) -> FetchedPartition:
        whole = b"".join(data for _, end, data in self.batches if end > position.offset)
        first = next((data for _, end, data in self.batches if end > position.offset), b"")
        records = whole[: max(position.max_bytes, len(first))]
        aborted = tuple((producer, at) for producer, at, last in self.aborted if last >= position.offset)
        return FetchedPartition(TOPIC, 0, 0, self.end, self.end, 0, aborted, memoryview(bytearray(records)))

    def expected(self) -> dict[int, bytes | str]:
        data = log_of(*(data for _, _, data in self.batches))
        aborted = [AbortedTransaction(producer, first) for producer, first, _ in self.aborted]
        return shown(SegmentPlanner().plan(data, next_offset=0, aborted=aborted, high_end=self.end))


def shown(steps: list[Step]) -> dict[int, bytes | str]:
    """Return the value, or the reason of the gap, of each offset."""
    found: dict[int, bytes | str] = {}
    for step in steps:
        if isinstance(step, Fill):
            found |= dict.fromkeys(range(step.start, step.end), step.reason)
        else:
            assert isinstance(step, Append)
            values = [record.value for record in DefaultRecordBatch(bytes(step.payload))]
            assert len(values) == step.count
            found |= dict(zip(range(step.start, step.end), values, strict=True))
    return found


class PieceConnection(FakeConnection[Subject]):
    """An extra connection that collects the requested pieces."""

    def request(
        self,
        positions: Mapping[bytes, Sequence[FetchPosition]],
        *,
        by_id: bool,
        limits: FetchLimits,
        subject: Subject,
        now: float,
    ) -> None:
        assert limits.max_wait_ms == 0
        ((topic, (_,)),) = positions.items()
        assert topic == TOPIC
        super().request(positions, by_id=by_id, limits=limits, subject=subject, now=now)

    def next_event(self, number: int, log: Log, now: float) -> None:
        """Lose the connection, refuse a request, or (nearly always) respond to it."""
        if number == 0:
            subjects, self.requested = [subject for _, subject in self.requested], []
            self.owner.lost(self, subjects)
            return
        part = log.fetch(self.requested[0][0])
        self.response(part._replace(error=NOT_LEADER, records=part.records[:0]) if number == 1 else part, now)


class Reader:
    """A partition that is read ahead, and the session that reads it otherwise."""

    def __init__(self, log: Log, memory: AheadMemory | None = None) -> None:
        FakeConnection.made = []
        self.log, self.now = log, 100.0
        self.steps: list[Step] = []
        self.memory = memory or AheadMemory()
        services: Any = SimpleNamespace(
            tuning=SimpleNamespace(coalesce_bytes=1 << 20),
            pool=SimpleNamespace(loose=lambda _: None),
            ahead=self.memory,
            bandwidth=Bandwidth(),
            clock=SimpleNamespace(monotonic=lambda: self.now, now_ms=lambda: 5),
        )
        events = FetchEvents(planned=lambda _: None, refused=self._refused, emptied=unexpected, lost=unexpected)
        self.planner = FetchPlanner(services, events)
        self.ahead = ReadAhead(services, NOWHERE, 0, planner=self.planner, left=lambda _: None)
        self.ahead.opened(0.08)
        self.mirror: PartitionState = partition()
        self.mirror.stage, self.mirror.position = Stage.COPYING, 0
        self.mirror.origin = SourceOrigin(Leader(broker=0, epoch=3), TOPIC)
        self.refused = 0

    def _refused(self, _: PartitionState, error: Exception) -> None:
        self.refused += 1

    def respond_to_all(self) -> None:
        """Respond to all requests in flight."""
        for connection in FakeConnection.made:
            while connection.outstanding:
                connection.next_event(2, self.log, self.now)

    def session(self) -> None:
        """Read once as a fetch session does: from the position."""
        assert self.mirror.position is not None
        if not self.mirror.may_fetch(self.now):
            return
        requested_from = self.mirror.position
        part, buffer = self.log.fetch(FetchPosition(0, 3, requested_from, 400)), Buffer()
        buffer.users = 1
        self.planner.take(self.mirror, part, buffer, responded_ms=5, alone=False)
        self.ahead.note(self.mirror, requested_from=requested_from, records=part.records)
        buffer.release()

    def write(self) -> None:
        """Write the oldest chunk to the mirror."""
        if self.mirror.chunks:
            chunk = self.mirror.chunks.popleft()
            self.steps += [
                replace(step, payload=memoryview(bytes(step.payload))) if isinstance(step, Append) else step
                for step in chunk.steps
            ]
            for step in chunk.steps:  # batches are patched in place for sending: nothing may read them afterwards
                if isinstance(step, Append):
                    struct.pack_into(">q", step.payload, 0, 0)
            chunk.buffer.release()

    def close(self) -> None:
        self.ahead.close()


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Make pieces a few batches large, over connections that the test controls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "ExtraConnection", PieceConnection)
        patch.setattr(log_pieces, "PIECE_BYTES", 700)
        patch.setattr(read_ahead, "LEAST_PIECES", 1)
        yield


KINDS = st.sampled_from(
    ["plain", "plain", "plain", "hole", "emptied", "transactional", "transactional", "commit", "abort", "abort"]
)
LOGS = st.lists(st.tuples(KINDS, st.integers(1, 3), st.integers(1, 6), st.integers(0, 120)), min_size=5, max_size=60)


def read_all(reader: Reader, choose: Callable[[int], int]) -> None:
    """Turn a reader until it has read its log; ``choose`` returns a number below its argument at every fork."""
    for _ in range(6_000):
        if reader.mirror.position == reader.log.end and not reader.mirror.chunks:
            return
        reader.now += 0.01 if choose(50) else 40.0
        if reader.mirror not in reader.ahead and not reader.ahead.admits(reader.mirror, reader.now):
            reader.session()
        reader.ahead.pump(reader.now)
        busy = [each for each in FakeConnection.made if each.outstanding]
        if busy:
            busy[choose(len(busy))].next_event(choose(40), reader.log, reader.now)
        if choose(2):
            reader.write()
    raise AssertionError(f"not at the end of {reader.log.end}: {reader.mirror.position}")


@settings(max_examples=60)
@given(LOGS, st.integers(0, 1 << 32))
def test_reading_ahead_copies_what_a_single_reader_copies(small_log: list[tuple[str, int, int, int]], seed: int) -> None:
    log = Log()
    for entry in small_log:
        log.write(*entry)
    log.close()
    reader = Reader(log)

    read_all(reader, Random(seed).randrange)

    assert shown(reader.steps) == log.expected()
    assert reader.refused == 0
    reader.close()
    assert reader.memory.used == 0


def plain_log() -> Log:
    log = Log()
    for _ in range(200):
        log.write("plain", 1, 3, 60)
    log.close()
    return log


def test_many_pieces_are_requested_before_the_first_response() -> None:
    reader = Reader(plain_log())
    reader.session()
    reader.write()

    assert reader.ahead.admits(reader.mirror, reader.now)
    for _ in range(10):
        reader.ahead.pump(reader.now)

    assert sum(each.outstanding for each in FakeConnection.made) > 20
    reader.close()
    assert sum(each.outstanding for each in FakeConnection.made) == 0


def test_no_piece_is_requested_whose_response_would_wait_for_memory() -> None:
    """Responses arrive in order: the response that all others wait for could be behind a response that waits for memory."""
    reader = Reader(plain_log(), AheadMemory(budget=6 * AHEAD_UNIT, reserve=2 * AHEAD_UNIT))
    reader.session()
    reader.write()
    reader.ahead.admits(reader.mirror, reader.now)
    for turn in range(400):
        reader.ahead.pump(reader.now)
        busy = [each for each in FakeConnection.made if each.outstanding]
        assert sum(each.outstanding for each in busy) * AHEAD_UNIT + reader.memory.used <= 8 * AHEAD_UNIT
        if busy:
            before, connection = busy[-1 - turn % len(busy)].outstanding, busy[-1 - turn % len(busy)]
            connection.next_event(2, reader.log, reader.now)
            assert connection.outstanding == before - 1
        if turn % 2:
            reader.write()

    assert reader.mirror.position == reader.log.end
    reader.close()
    assert reader.memory.used == 0


def test_near_source_is_not_read_ahead() -> None:
    reader = Reader(plain_log())
    reader.ahead.opened(0.002)

    reader.session()

    assert not reader.ahead.admits(reader.mirror, reader.now)
    assert reader.ahead.connections == 0


def test_broker_that_was_only_busy_is_left_to_the_session() -> None:
    """Its first connection took long to open, a later one does not."""
    reader = Reader(plain_log())
    reader.session()
    assert reader.ahead.admits(reader.mirror, reader.now)
    reader.ahead.pump(reader.now)

    reader.ahead.near()

    assert reader.mirror not in reader.ahead
    assert reader.ahead.connections == 0
    assert not reader.ahead.admits(reader.mirror, reader.now + 100)


def test_pieces_are_dropped_when_the_attempt_ends() -> None:
    reader = Reader(plain_log())
    reader.session()
    reader.write()
    reader.ahead.admits(reader.mirror, reader.now)
    for _ in range(3):
        reader.ahead.pump(reader.now)
    reader.respond_to_all()
    held = reader.memory.used

    for chunk in reader.mirror.stop():
        chunk.buffer.release()
    reader.ahead.pump(reader.now)

    assert held > 0
    assert reader.memory.used == 0
    assert reader.mirror not in reader.ahead


def test_stalled_mirror_releases_its_memory() -> None:
    reader = Reader(plain_log())
    reader.session()
    reader.ahead.admits(reader.mirror, reader.now)
    for _ in range(20):
        reader.ahead.pump(reader.now)
        reader.respond_to_all()
    held = reader.memory.used

    reader.now += read_ahead.STALLED_S + 1
    reader.ahead.pump(reader.now)
    tails = len(reader.mirror.chunks)

    assert tails == 2
    assert reader.memory.used <= tails * AHEAD_UNIT < held


@pytest.mark.parametrize("wrong_offset", [0, 40, 93, 2_000])
def test_batch_with_a_damaged_base_offset_hides_no_record(monkeypatch: pytest.MonkeyPatch, wrong_offset: int) -> None:
    """A base offset is outside the checksum, so a batch that contradicts the position is read again from the position."""
    good, damaged = plain_log(), plain_log()
    first, end, data = damaged.batches[30]
    assert first == 90
    damaged.batches[30] = (first, end, struct.pack(">q", wrong_offset) + data[8:])
    reader = Reader(good)
    intact, pieces = good.fetch, []

    def fetch(position: FetchPosition) -> FetchedPartition:
        """Damage what is read ahead; a request at the position gets the intact log."""
        if position.offset == reader.mirror.position:
            return intact(position)
        pieces.append(position)
        return damaged.fetch(position)

    monkeypatch.setattr(good, "fetch", fetch)

    read_all(reader, lambda most: min(2, most - 1))

    assert len(pieces) > 10
    assert shown(reader.steps) == good.expected()


def test_committed_records_behind_an_abort_marker_before_the_position_do_not_count_as_aborted() -> None:
    """The response lists the aborted transaction, since it starts within it; only the marker shows where it ends."""
    log = Log()
    log.write("transactional", 1, 3, 10)
    log.finish(1, "abort")
    log.write("transactional", 1, 3, 10)
    log.finish(1, "commit")
    log.close()
    reader, buffer = Reader(log), Buffer()
    buffer.users, reader.mirror.position = 1, 4

    part = log.fetch(FetchPosition(0, 3, 1, 10_000))
    joined = reader.planner.join(reader.mirror, part, buffer, requested_from=1, responded_ms=5)

    assert part.aborted == ((1, 0),)
    assert joined
    reader.write()
    assert shown(reader.steps) == {offset: what for offset, what in log.expected().items() if offset >= 4}
    assert isinstance(shown(reader.steps)[4], bytes)
