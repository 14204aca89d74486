"""Record batches encoded here from the format's definition, and a decoder independent of the engine, for comparison in tests.

Payloads are decoded with kafka-python's pure Python codec.
"""

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import cramjam
import google_crc32c
from kafka.record.default_records import DefaultRecordBatch

ATTRIBUTES_AT, RECORDS_AT = 21, 61
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 8, 16, 32, 64
XERIAL_HEADER = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


@dataclass(frozen=True)
class Rec:
    """A record as a consumer sees it."""

    timestamp: int = 1_700_000_000_000
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """A batch of magic 2 by its fields; ``records`` maps offset deltas to records."""

    base_offset: int
    records: dict[int, Rec] = field(default_factory=dict)
    last_offset_delta: int | None = None  # None: that of the last record
    codec: int = 0
    bits: int = 0
    producer_id: int = -1
    base_timestamp: int | None = None
    max_timestamp: int | None = None

    @property
    def end(self) -> int:
        last = max(self.records) if self.last_offset_delta is None else self.last_offset_delta
        return self.base_offset + last + 1

    def encode(self) -> bytes:
        times = [record.timestamp for record in self.records.values()] or [-1]
        base = times[0] if self.base_timestamp is None else self.base_timestamp
        newest = max(times) if self.max_timestamp is None else self.max_timestamp
        body = compress(self.codec, b"".join(_record(delta, record, base) for delta, record in self.records.items()))
        tail = struct.pack(
            ">hiqqqhii",
            self.codec | self.bits,
            self.end - self.base_offset - 1,
            base,
            newest,
            self.producer_id,
            0 if self.producer_id >= 0 else -1,
            0 if self.producer_id >= 0 else -1,
            len(self.records),
        )
        tail += body
        return struct.pack(">qiibI", self.base_offset, len(tail) + 9, 7, 2, google_crc32c.value(tail)) + tail


def log_of(*batches: Batch | bytes) -> memoryview:
    """Return the batches in sequence in writable memory, as a Fetch response contains them."""
    return memoryview(bytearray(b"".join(batch.encode() if isinstance(batch, Batch) else batch for batch in batches)))


def resealed(batch: bytes, at_byte: int, value: int) -> bytes:
    """Return the batch with a changed byte and a valid checksum, as a faulty producer would write it."""
    changed = bytearray(batch)
    changed[at_byte] = value
    struct.pack_into(">I", changed, 17, google_crc32c.value(bytes(changed[ATTRIBUTES_AT:])))
    return bytes(changed)


def dense(base_offset: int, records: Sequence[Rec], **options: int) -> Batch:
    return Batch(base_offset, dict(enumerate(records)), **options)


def marker(offset: int, kind: int, producer_id: int) -> Batch:
    key = struct.pack(">hh", 0, kind)
    record = Rec(key=key, value=struct.pack(">hi", 0, 0))
    return Batch(offset, {0: record}, bits=TRANSACTIONAL | CONTROL, producer_id=producer_id)


def message(offset: int, magic: int, record: Rec, attributes: int = 0) -> bytes:
    """Return a message of magic 0 or 1."""
    tail = struct.pack(">bb", magic, attributes) + (struct.pack(">q", record.timestamp) if magic else b"")
    tail += b"".join(
        struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part for part in (record.key, record.value)
    )
    return struct.pack(">qiI", offset, len(tail) + 4, crc32_of_gzip(tail)) + tail


def wrapper(magic: int, codec: int, records: dict[int, Rec], *, bits: int = 0, timestamp: int = 5) -> bytes:
    """Return a compressed message that wraps ``records``, given by absolute offset."""
    first = min(records) if magic else 0
    inner = b"".join(message(offset - first, magic, record) for offset, record in records.items())
    packed = compress(codec, inner)
    if magic == 0 and codec == LZ4:
        packed = packed[:6] + bytes([packed[6] ^ 0xFF]) + packed[7:]  # KAFKA-3160: incorrect header checksum
    return message(max(records), magic, Rec(timestamp, None, packed), codec | bits)


def crc32_of_gzip(data: bytes) -> int:
    trailer = gzip.compress(data, mtime=0)[-8:]  # a gzip member ends with its CRC-32
    return int(struct.unpack("<I", trailer[:4])[0])


def varint(value: int) -> bytes:
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = b""
    while rest >= 128:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest])


def _record(delta: int, record: Rec, base_timestamp: int) -> bytes:
    def text(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(record.timestamp - base_timestamp) + varint(delta) + text(record.key) + text(record.value)
    body += varint(len(record.headers)) + b"".join(text(key) + text(value) for key, value in record.headers)
    return varint(len(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:  # bare, as librdkafka does
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == LZ4:
        frame = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    return bytes(cramjam.zstd.compress(data)) if codec == ZSTD else data


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        return _from_xerial(data)
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(data))
    return bytes(cramjam.zstd.decompress(data)) if codec == ZSTD else data


def _from_xerial(data: bytes) -> bytes:
    if not data.startswith(XERIAL_HEADER):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, position = b"", len(XERIAL_HEADER)
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        out += bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))
        position += 4 + size
    return out


@dataclass(frozen=True)
class Payload:
    """A batch as kafka-python decodes it."""

    base_offset: int
    attributes: int
    producer: tuple[int, int, int]
    last_offset_delta: int
    max_timestamp: int
    checksum_right: bool
    records: tuple[Rec, ...]


def read_payload(payload: bytes | bytearray | memoryview) -> Payload:
    """Return a decoded batch; its records must have the offset deltas 0, 1, 2 and so on."""
    data = bytes(payload)
    head = DefaultRecordBatch(data)
    plain = decompress(head.compression_type, data[RECORDS_AT:])
    bare = bytearray(data[:RECORDS_AT] + plain)
    struct.pack_into(">h", bare, ATTRIBUTES_AT, head.attributes & LOG_APPEND_TIME)
    records = list(DefaultRecordBatch(bare))
    assert [record.offset - head.base_offset for record in records] == list(range(len(records)))
    return Payload(
        head.base_offset,
        head.attributes,
        (head.producer_id, head.producer_epoch, head.base_sequence),
        head.last_offset_delta,
        head.max_timestamp,
        head.crc == google_crc32c.value(data[ATTRIBUTES_AT:]),
        tuple(
            Rec(record.timestamp, record.key, record.value, tuple((key.encode(), value) for key, value in record.headers))
            for record in records
        ),
    )


def at(record: Rec, timestamp: int) -> Rec:
    return replace(record, timestamp=timestamp)
