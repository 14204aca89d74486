"""Kafka's wire format, for requests whose bodies are too large for a general encoder.

Flexible versions (KIP-482): lengths are unsigned varints of length + 1 (0 is null), every struct ends with tagged fields.
Request header version 2: api key int16, version int16, correlation id int32, client id (int16 length), tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from linkengine.domain.errors import ErrorCode, LinkEngineError

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

    def __init__(self, what: str, *, peer: str = "") -> None:
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

    def tags(self, read: dict[int, Callable[[Reader], None]] | None = None) -> None:
        """Skip tagged fields; ``read`` has the decoders of those to read."""
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            end = self.at + size
            if end > len(self.data):
                raise IndexError(f"a tagged field ends at {end}, the response at {len(self.data)}")
            if read and tag in read:
                read[tag](self)
            self.at = end


def skip_response_header(reader: Reader) -> None:
    """Skip the tagged fields of a response header version 1; the correlation id was read with the frame."""
    reader.tags()
