"""Primitives of the wire format, compared with kafka-python's encoders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from linkengine.kafka.protocol import CLIENT_ID, INT16, INT32, Reader, compact_string, request_frame, uvarint


@given(st.integers(min_value=0, max_value=(1 << 31) - 1))
def test_an_unsigned_varint_is_decoded_to_its_value(value: int) -> None:
    assert Reader(memoryview(uvarint(value))).uvarint() == value


@given(st.text(max_size=300))
def test_a_compact_string_is_decoded_to_its_text(text: str) -> None:
    assert Reader(memoryview(compact_string(text))).compact_text() == text


def test_null_is_not_the_empty_string() -> None:
    assert Reader(memoryview(b"\x00")).compact_text() is None
    assert Reader(memoryview(b"\x01")).compact_text() == ""


def test_a_slice_that_reaches_beyond_the_end_is_refused() -> None:
    with pytest.raises(IndexError, match="9 bytes announced"):
        Reader(memoryview(b"\x0aabc")).compact_bytes()


@pytest.mark.parametrize("number", [-1, -6, 4, (1 << 15) - 1])
def test_a_string_with_a_negative_length_or_beyond_the_end_is_refused(number: int) -> None:
    with pytest.raises(IndexError, match=f"{number} elements announced at 2, 3 bytes present"):
        Reader(memoryview(INT16.pack(number) + b"abc")).text()


@pytest.mark.parametrize(("number", "each"), [(-1, 1), (3, 4), (1 << 30, 8)])
def test_an_array_with_a_negative_length_or_beyond_the_end_is_refused(number: int, each: int) -> None:
    with pytest.raises(IndexError, match="elements announced"):
        Reader(memoryview(INT32.pack(number) + bytes(11))).length(INT32, each=each)


def test_strings_and_arrays_are_read_up_to_the_end() -> None:
    reader = Reader(memoryview(INT16.pack(2) + "ä".encode() + INT16.pack(0) + INT32.pack(2) + bytes(8)))

    assert (reader.text(), reader.text(), reader.length(INT32, each=4)) == ("ä", "", 2)


def test_a_request_header_equals_kafka_pythons() -> None:
    request = MetadataRequest(version=12, topics=[], allow_auto_topic_creation=False)
    request.with_header(correlation_id=77, client_id=CLIENT_ID.decode())
    whole = bytes(request.encode(header=True, framed=True))
    body = bytes(request.encode())

    assert b"".join(request_frame(3, 12, correlation_id=77, body=[body])) == whole
    assert ApiVersionsRequest.API_KEY == 18


def test_tagged_fields_are_skipped() -> None:
    data = uvarint(2) + uvarint(0) + uvarint(3) + b"abc" + uvarint(9) + uvarint(4) + INT32.pack(5) + b"rest"
    reader = Reader(memoryview(data))

    reader.tags()

    assert bytes(reader.data[reader.at :]) == b"rest"
