"""Kafka's wire format and error codes, as far as the data path uses them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from kafka.errors import for_code

from linkengine.domain.errors import ErrorCode, LinkEngineError

# --- wire format ---------------------------------------------------------------------------------------------------------
# For requests whose bodies are too large for a general encoder. Flexible versions (KIP-482): lengths are unsigned varints of
# length + 1 (0 is null), every struct ends with tagged fields. Request header version 2: api key int16, version int16,
# correlation id int32, client id (int16 length), tagged fields.


CLIENT_ID = b"cluster-link"
NO_TAGS = b"\x00"

_REQUEST_HEADER = struct.Struct(f">ihhih{len(CLIENT_ID)}sB")
_SIZE = struct.Struct(">i")

_SINGLE = [bytes([value]) for value in range(0x80)]

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

Bytes = bytes | bytearray | memoryview


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, lowest first."""
    if value < 0x80:
        return _SINGLE[value]
    if 0x4000 <= value < 0x200000:  # the usual size of a batch
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str) -> bytes:
    """Encode a string of a flexible version."""
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def request_frame(api_key: int, version: int, *, correlation_id: int, body: Sequence[Bytes]) -> list[Bytes]:
    """Return ``body`` with size and a flexible request header in front; nothing of the body is copied."""
    size = _REQUEST_HEADER.size - _SIZE.size + sum(map(len, body))
    header = _REQUEST_HEADER.pack(size, api_key, version, correlation_id, len(CLIENT_ID), CLIENT_ID, 0)
    return [header, *body]


# Errors from decoding an invalid response: too short, text that is not UTF-8, or a part that is null, missing or unexpected.
UNREADABLE = (
    struct.error, IndexError, KeyError, ValueError, TypeError, AttributeError, AssertionError, OverflowError, EOFError,
)  # fmt: skip
_VARINT_MAX_SHIFT = 63  # ten bytes; longer numbers would take quadratic time


class MalformedResponseError(LinkEngineError):
    """Bytes that are not a response to the request."""

    def __init__(self, what: str, *, peer: str) -> None:
        broker = f"Broker {peer}" if peer else "A broker"
        super().__init__(
            ErrorCode.MALFORMED_RESPONSE_ERROR,
            f"{broker} sent a response to {what} that cannot be read. A device on the network path changes it, or the server "
            "is not a Kafka broker. The connection is closed and the request repeated. If this stays, check bootstrap.servers, "
            "security.protocol and the proxies or load balancers in between.",
        )


@contextmanager
def decoding_response(what: str, *, peer: str = "") -> Iterator[None]:
    """Convert decoding errors inside to MalformedResponseError for the response to ``what``."""
    try:
        yield
    except UNREADABLE as error:
        raise MalformedResponseError(what, peer=peer) from error


class Reader:
    """Reads a response, or a part that a client wrote, without copying its bytes. Raises one of UNREADABLE beyond the end.

    It only moves forward: the number of reads is limited by the number of bytes, whatever lengths and counts they announce.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: memoryview, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read fixed fields."""
        values = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values

    def int16(self) -> int:
        return self.take(INT16)[0]

    def int32(self) -> int:
        return self.take(INT32)[0]

    def int64(self) -> int:
        return self.take(INT64)[0]

    def length(self, layout: struct.Struct, *, each: int = 1) -> int:
        """Read the length of a string or array of a version that is not flexible; ``each`` is the fewest bytes of an element.

        A negative length is refused, since reading would continue at an earlier byte. So is a length beyond the end of the
        data, before anything is allocated.
        """
        (length,) = self.take(layout)
        if not 0 <= length * each <= len(self.data) - self.at:
            raise IndexError(f"{length} elements announced at {self.at}, {len(self.data) - self.at} bytes present")
        return length

    def text(self) -> str:
        """Read a string of a version that is not flexible."""
        start = self.at + INT16.size
        self.at = start + self.length(INT16)
        return bytes(self.data[start : self.at]).decode()

    def uvarint(self) -> int:
        """Read an unsigned varint."""
        value = self.data[self.at]
        self.at += 1
        if value < 0x80:  # the usual case
            return value
        value, shift = value & 0x7F, 7
        while shift <= _VARINT_MAX_SHIFT:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError(f"a number of more than ten bytes ends at {self.at}")

    def compact_length(self) -> int:
        """Read the length of a compact string, bytes or array; -1 if it is null.

        Every element takes at least a byte, so a length beyond the end of the response is refused before anything is allocated.
        """
        length = self.uvarint() - 1
        if length > len(self.data) - self.at:
            raise IndexError(f"at least {length} bytes announced at {self.at}, {len(self.data) - self.at} present")
        return length

    def compact_bytes(self) -> memoryview | None:
        """Return a slice of the response, None if it is null."""
        length = self.compact_length()
        if length < 0:
            return None
        start = self.at
        self.at += length
        return self.data[start : self.at]

    def compact_text(self) -> str | None:
        """Read a string, None if it is null."""
        taken = self.compact_bytes()
        return None if taken is None else bytes(taken).decode()

    def skip(self, count: int) -> None:
        """Skip bytes."""
        self.at += count
        if self.at > len(self.data):
            raise IndexError(f"the response ends at {len(self.data)}, before {self.at}")

    def tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.uvarint()):
            self.uvarint()  # tag
            self.skip(self.uvarint())


def skip_response_header(reader: Reader) -> None:
    """Skip the tagged fields of a response header version 1; the correlation id was read with the frame."""
    reader.tags()


# --- error codes ---------------------------------------------------------------------------------------------------------
# Numbers of Kafka's protocol guide, with an error text for each. The callers decide how to react.


class KafkaCode(IntEnum):
    """Error codes of broker responses."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    UNSUPPORTED_VERSION = 35
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    STALE_MEMBER_EPOCH = 113


REFUSED = frozenset(
    {
        KafkaCode.TOPIC_AUTHORIZATION_FAILED,
        KafkaCode.CLUSTER_AUTHORIZATION_FAILED,
        KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
TOPIC_GONE = frozenset({KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaCode.UNKNOWN_TOPIC_ID, KafkaCode.INCONSISTENT_TOPIC_ID})
TOO_FEW_REPLICAS = frozenset({KafkaCode.NOT_ENOUGH_REPLICAS, KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
LEADER_MOVED = frozenset(
    {
        KafkaCode.LEADER_NOT_AVAILABLE,
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.FENCED_LEADER_EPOCH,
        KafkaCode.UNKNOWN_LEADER_EPOCH,
    }
)
TOO_LARGE = frozenset({KafkaCode.MESSAGE_TOO_LARGE, KafkaCode.RECORD_LIST_TOO_LARGE})
BATCH_ERRORS = frozenset(  # the broker works, but refuses this batch
    {
        *TOO_LARGE,
        KafkaCode.CORRUPT_MESSAGE,
        KafkaCode.INVALID_TIMESTAMP,
        KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaCode.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaCode.INVALID_RECORD,
    }
)

_ENGINE_CODES: dict[int, ErrorCode] = {
    **dict.fromkeys(REFUSED, ErrorCode.AUTHORIZATION_ERROR),
    **dict.fromkeys(TOPIC_GONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR),
    **dict.fromkeys(LEADER_MOVED, ErrorCode.TIMEOUT_ERROR),
    **dict.fromkeys(BATCH_ERRORS, ErrorCode.MISCONFIGURATION_ERROR),
    KafkaCode.CORRUPT_MESSAGE: ErrorCode.CORRUPT_RECORDS,
    KafkaCode.INVALID_RECORD: ErrorCode.KEYLESS_RECORDS,  # nothing else can be invalid in a copied batch
    **dict.fromkeys(TOO_FEW_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_ERROR),
    KafkaCode.KAFKA_STORAGE_ERROR: ErrorCode.TIMEOUT_ERROR,
    KafkaCode.REQUEST_TIMED_OUT: ErrorCode.TIMEOUT_ERROR,
    KafkaCode.REPLICA_NOT_AVAILABLE: ErrorCode.TIMEOUT_ERROR,
    KafkaCode.OFFSET_NOT_AVAILABLE: ErrorCode.TIMEOUT_ERROR,  # from a new leader without a high watermark yet (KIP-207)
    KafkaCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.TIMEOUT_ERROR,
    KafkaCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.TIMEOUT_ERROR,
    KafkaCode.NOT_COORDINATOR: ErrorCode.TIMEOUT_ERROR,
    KafkaCode.GROUP_AUTHORIZATION_FAILED: ErrorCode.AUTHORIZATION_ERROR,
    KafkaCode.OFFSET_METADATA_TOO_LARGE: ErrorCode.MISCONFIGURATION_ERROR,
    KafkaCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.MISCONFIGURATION_ERROR,
    KafkaCode.INVALID_GROUP_ID: ErrorCode.INVALID_REQUEST_ERROR,
    KafkaCode.GROUP_ID_NOT_FOUND: ErrorCode.INVALID_REQUEST_ERROR,
    KafkaCode.UNSTABLE_OFFSET_COMMIT: ErrorCode.WAITING_FOR_GROUPS,
    KafkaCode.POLICY_VIOLATION: ErrorCode.POLICY_VIOLATION_ERROR,
    KafkaCode.TOPIC_DELETION_DISABLED: ErrorCode.TOPIC_DELETION_DISABLED,
    KafkaCode.SASL_AUTHENTICATION_FAILED: ErrorCode.AUTHENTICATION_ERROR,
}


class BrokerError(LinkEngineError):
    """A broker returned an error code; ``kafka_code`` is the number."""

    def __init__(self, kafka_code: int, message: str) -> None:
        super().__init__(engine_code(kafka_code), f"{message}: {code_name(kafka_code)}. {_ADVICE.get(kafka_code, '')}".strip())
        self.kafka_code = kafka_code


class UnreplicatedError(LinkEngineError):
    """The end of a partition is beyond its high watermark, so it cannot be read yet (KIP-966)."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            ErrorCode.NOT_ENOUGH_REPLICAS_ERROR,
            f"The end of {topic}-{partition} is not replicated yet: followers are down, or slow. Bring the brokers back that "
            "are down. Retrying.",
        )


class RedirectedError(LinkEngineError):
    """A leader sends readers to a follower (KIP-392): its response is empty whatever the log holds."""

    def __init__(self, where: str, *, replica: int) -> None:
        super().__init__(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"The leader of {where} sends readers to broker {replica} (its replica.selector.class) and returns no records. A "
            "link reads from leaders only. Let the selector choose the leader for the link's principal and addresses, or "
            "remove replica.selector.class. Retrying.",
        )


def code_name(kafka_code: int) -> str:
    """Return the protocol's name of an error code, for messages."""
    try:
        return KafkaCode(kafka_code).name
    except ValueError:
        return str(getattr(for_code(kafka_code), "message", "") or f"error {kafka_code}")


def engine_code(kafka_code: int) -> ErrorCode:
    """Return the engine's stable code for a broker's error code."""
    return _ENGINE_CODES.get(kafka_code, ErrorCode.INTERNAL_ERROR)


_ADVICE: dict[int, str] = {
    KafkaCode.TOPIC_AUTHORIZATION_FAILED: (
        "Give the link's principal the right on the topic (READ and DESCRIBE on the source). The request is retried."
    ),
    KafkaCode.CLUSTER_AUTHORIZATION_FAILED: (
        "Give the link's principal ALTER (or CLUSTER_ACTION) on the destination cluster. The request is retried."
    ),
    KafkaCode.GROUP_AUTHORIZATION_FAILED: (
        "Give the link's principal DESCRIBE on the group at the source, and READ on it at the destination."
    ),
    KafkaCode.INVALID_COMMIT_OFFSET_SIZE: (
        "The group's name and the metadata of its offset make a record that is too large for the topic __consumer_offsets. "
        "Raise max.message.bytes of that topic."
    ),
    KafkaCode.GROUP_ID_NOT_FOUND: (
        "A group of this name has another type (share or streams), which holds no such offsets. Delete it, or exclude the "
        "group in consumer.offset.group.filters."
    ),
    KafkaCode.INVALID_GROUP_ID: "This cluster does not accept the group's name.",
    KafkaCode.UNSTABLE_OFFSET_COMMIT: (
        "A transaction that commits offsets of the group has not ended. End it at its producer, or wait: an abandoned one is "
        "aborted at its producer's transaction timeout."
    ),
    KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Give the link's principal WRITE and DESCRIBE on transactional ids that begin with clusterlink-."
    ),
    **dict.fromkeys(
        TOO_FEW_REPLICAS,
        "Fewer replicas than min.insync.replicas are up. Bring the brokers back that are down; copying waits for them.",
    ),
    KafkaCode.KAFKA_STORAGE_ERROR: (
        "The broker's disk is full or broken. Free space or replace it; copying waits and continues automatically."
    ),
    KafkaCode.MESSAGE_TOO_LARGE: "Raise max.message.bytes of the mirror topic to at least the source's largest batch.",
    KafkaCode.RECORD_LIST_TOO_LARGE: (
        "Raise segment.bytes of the mirror topic above the source's largest batch; copying then continues automatically."
    ),
    KafkaCode.CORRUPT_MESSAGE: (
        "The checksum of the records is wrong. They are read again and checked before the next attempt. If the disk or the "
        "memory of a broker is the cause, move leadership to another replica."
    ),
    KafkaCode.TOPIC_DELETION_DISABLED: "Set delete.topic.enable=true on the brokers and controllers, then delete it again.",
    KafkaCode.INVALID_TIMESTAMP: (
        "Set message.timestamp.before.max.ms and message.timestamp.after.max.ms of the mirror topic to 9223372036854775807."
    ),
    KafkaCode.INVALID_RECORD: (
        "A compacted topic accepts no records without a key, and the source holds some from before it was compacted. The next "
        "run of the config sync sets cleanup.policy of the mirror to delete until they are copied; if the mirror has a "
        "retention of its own, set it manually."
    ),
}
