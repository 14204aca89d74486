"""The simple model that the planner is compared with: what a read-committed consumer sees at each offset of a generated log.

Strategies draw whole logs: dense, sparse, emptied and old batches, interleaved transactions, markers, gaps between batches.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from linkengine.batches.planning import AbortedTransaction
from linkengine.domain.states import GapReason
from tests.linkengine.batches.batchlog import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    Rec,
    at,
    marker,
    message,
    wrapper,
)

ABORT, COMMIT = 0, 1
CODECS = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
PRODUCERS = (11, 12, 13)
HEADERS = st.lists(st.tuples(st.sampled_from([b"h", b"", "é".encode()]), st.none() | st.binary(max_size=3)), max_size=2)
RECS = st.builds(
    Rec,
    timestamp=st.integers(0, 1000) | st.sampled_from([-1, 0, (1 << 62) - 1]),
    key=st.none() | st.binary(max_size=8),
    value=st.none() | st.binary(max_size=30),
    headers=HEADERS.map(tuple),
)
DENSE = st.lists(RECS, min_size=1, max_size=8).map(lambda recs: dict(enumerate(recs)))
SPARSE = st.dictionaries(st.integers(0, 12), RECS, max_size=8).map(lambda recs: dict(sorted(recs.items())))

Shown = tuple[Rec, int]  # a record and the codec it is stored with


@dataclass
class SourceLog:
    """Encoded batches with their first offsets, and what a consumer sees at every offset."""

    end: int = 0
    starts: list[int] = field(default_factory=list)  # an offset from which the batch may be fetched
    encoded: list[bytes] = field(default_factory=list)
    shows: dict[int, Shown | GapReason] = field(default_factory=dict)
    aborted: list[tuple[AbortedTransaction, int]] = field(default_factory=list)  # with the marker's offset
    open: dict[int, int] = field(default_factory=dict)  # first offset by producer
    pending: dict[int, list[int]] = field(default_factory=dict)  # data offsets by producer

    def put(self, data: bytes, end: int, default: GapReason) -> None:
        self.starts.append(self.end)
        self.encoded.append(data)
        self.shows.update(dict.fromkeys(range(self.end, end), default))
        self.end = end

    def skip(self, count: int) -> None:
        """Leave out offsets, as compaction does when it removes whole batches."""
        self.shows.update(dict.fromkeys(range(self.end, self.end + count), GapReason.COMPACTED))
        self.end += count

    def batch(self, batch: Batch) -> None:
        stamp = batch.max_timestamp if batch.bits & LOG_APPEND_TIME else None
        self.put(batch.encode(), batch.end, GapReason.COMPACTED)
        for delta, record in batch.records.items():
            self.shows[batch.base_offset + delta] = (record if stamp is None else at(record, stamp), batch.codec)
        if batch.bits & TRANSACTIONAL and batch.records:
            self.open.setdefault(batch.producer_id, batch.base_offset)
            self.pending.setdefault(batch.producer_id, []).extend(range(batch.base_offset, batch.end))

    def finish_transaction(self, producer_id: int, kind: int) -> None:
        if producer_id not in self.open:
            return
        offsets, first, at_offset = self.pending.pop(producer_id), self.open.pop(producer_id), self.end
        self.put(marker(at_offset, kind, producer_id).encode(), at_offset + 1, GapReason.TRANSACTION_MARKER)
        if kind == ABORT:
            self.shows.update(dict.fromkeys(offsets, GapReason.ABORTED))
            self.aborted.append((AbortedTransaction(producer_id, first), at_offset))

    def old(self, data: bytes, magic: int, records: dict[int, Rec], codec: int) -> None:
        self.put(data, max(records) + 1, GapReason.COMPACTED)
        for offset, record in records.items():
            self.shows[offset] = (record if magic else at(record, -1), codec)

    def response(self, next_offset: int) -> tuple[bytearray, list[AbortedTransaction]]:
        """Return what a broker sends for a Fetch at ``next_offset``: whole batches from the batch that contains it."""
        first = max((number for number, start in enumerate(self.starts) if start <= next_offset), default=0)
        aborted = [transaction for transaction, last in self.aborted if last >= next_offset]
        return bytearray(b"".join(self.encoded[first:])), aborted


@st.composite
def source_logs(draw: st.DrawFn) -> SourceLog:
    log = SourceLog()
    log.skip(draw(st.sampled_from([0, 0, 5])))
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(
            st.sampled_from(
                ["row", "row", "dense", "dense", "sparse", "transactional", "transactional", "marker", "skip", "old"]
            )
        )
        _PIECES[kind](draw, log)
    for producer in list(log.open):
        log.finish_transaction(producer, draw(st.sampled_from([ABORT, COMMIT])))
    _dense(draw, log)  # a gap becomes visible only when a batch follows it
    return log


def _dense(draw: st.DrawFn, log: SourceLog) -> None:
    bits = draw(st.sampled_from([0, 0, 0, DELETE_HORIZON, LOG_APPEND_TIME]))
    log.batch(Batch(log.end, draw(DENSE), codec=draw(CODECS), bits=bits, max_timestamp=2000, base_timestamp=draw(st.just(500))))


def _row(draw: st.DrawFn, log: SourceLog) -> None:
    """Add single-record batches, as producers without batching write them, some of them transactional."""
    producer = draw(st.sampled_from(PRODUCERS))
    for bits in draw(st.lists(st.sampled_from([0, 0, 0, TRANSACTIONAL]) | st.sampled_from([0]), min_size=1, max_size=24)):
        log.batch(Batch(log.end, {0: draw(RECS)}, bits=bits, producer_id=producer))


def _sparse(draw: st.DrawFn, log: SourceLog) -> None:
    records = draw(SPARSE)
    last = max(records, default=0) + draw(st.integers(0, 3))
    bits = draw(st.sampled_from([0, DELETE_HORIZON]))
    log.batch(Batch(log.end, records, last_offset_delta=last, codec=draw(CODECS), bits=bits))


def _transactional(draw: st.DrawFn, log: SourceLog) -> None:
    records = draw(DENSE | SPARSE.filter(bool))
    producer = draw(st.sampled_from(PRODUCERS))
    log.batch(Batch(log.end, records, codec=draw(CODECS), bits=TRANSACTIONAL, producer_id=producer))


def _marker(draw: st.DrawFn, log: SourceLog) -> None:
    log.finish_transaction(draw(st.sampled_from(PRODUCERS)), draw(st.sampled_from([ABORT, COMMIT])))


def _skip(draw: st.DrawFn, log: SourceLog) -> None:
    log.skip(draw(st.integers(1, 4)))


def _old(draw: st.DrawFn, log: SourceLog) -> None:
    magic, codec = draw(st.sampled_from([0, 1])), draw(st.sampled_from([0, 1, 2, 3]))
    plain = st.builds(Rec, timestamp=st.integers(0, 1000), value=st.binary(max_size=9))
    if codec == 0:
        record = draw(plain)
        log.old(message(log.end, magic, record), magic, {log.end: record}, 0)
        return
    deltas = draw(st.sets(st.integers(0, 6), min_size=1))
    records = {log.end + delta: draw(plain) for delta in sorted(deltas)}
    log.old(wrapper(magic, codec, records), magic, records, codec)


_PIECES = {
    "dense": _dense,
    "row": _row,
    "sparse": _sparse,
    "transactional": _transactional,
    "marker": _marker,
    "skip": _skip,
    "old": _old,
}
