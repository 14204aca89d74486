"""A field of a record as text, JSON and hex."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from console.verification.record_presenters import VERDICT_BADGES, field_text, hex_dump, indented
from linkengine.domain.record_views import RecordVerdict


def field(data: bytes, *, size: int | None = None) -> dict[str, Any]:
    size = len(data) if size is None else size
    return {"size": size, "base64": b64encode(data).decode(), "is_cut": size > len(data)}


@pytest.mark.parametrize(
    ("data", "shown", "text"),
    [
        (b"plain", "text", "plain"),
        (b'{"a":1}', "json", '{"a":1}'),
        (b"[1", "text", "[1"),
        (b"42", "text", "42"),
        (b"\x00\xff", "hex", None),
        ("a\u202eb\x07\ttab\nline".encode(), "text", "a\\u202eb\\x07\ttab\nline"),
        ("日本語".encode(), "text", "日本語"),
    ],
)
def test_bytes_open_in_the_form_that_they_have(data: bytes, shown: str, text: str | None) -> None:
    found = field_text(field(data))

    assert (found.shown, found.text) == (shown, text)
    assert not found.is_null


def test_null_and_empty_are_distinguished() -> None:
    null, empty = field_text(None), field_text(field(b""))

    assert (null.is_null, null.is_empty) == (True, False)
    assert (empty.is_null, empty.is_empty) == (False, True)


def test_cut_field_is_marked_and_is_no_json() -> None:
    found = field_text(field('["é'.encode()[:-1], size=20_000_000))

    assert found.text == '["'
    assert found.json is None
    assert found.cut == "the first 3 B of 19.1 MiB"


@pytest.mark.parametrize(
    "text", ['{"a": 1.10, "b": [1, 2, {}], "c": []}', '[{"x\\"{": "a, b: [c]"}, null, true, -1e999]', "[]", '{"a":1,"a":2}']
)
def test_indented_json_keeps_every_token(text: str) -> None:
    found = indented(text)

    assert found is not None
    assert json.loads(found, object_pairs_hook=list, parse_float=str) == json.loads(
        text, object_pairs_hook=list, parse_float=str
    )


def test_deeply_nested_json_is_not_indented() -> None:
    assert indented("[" * 5_000 + "]" * 5_000) is None
    assert indented("[" * 60 + "]" * 60) is None
    assert indented("[" * 20 + "]" * 20) is not None


def test_hex_dump_has_position_bytes_and_text() -> None:
    assert hex_dump(b"kafka\x00").split() == ["00000000", "6b", "61", "66", "6b", "61", "00", "kafka."]
    assert len({len(line) for line in hex_dump(bytes(20)).splitlines()}) == 2  # only the text is shorter in the last line
    assert hex_dump(bytes(32)).count("\n") == 1


def test_every_verdict_has_a_badge() -> None:
    assert set(VERDICT_BADGES) == set(RecordVerdict)
