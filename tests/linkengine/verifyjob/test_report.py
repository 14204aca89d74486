"""Record values in reports are short, printable and shown from their first difference; Spark failures become errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import VerifyPlan
from linkengine.verifyjob.job import difference_of, failure_of

NOWHERE = ClusterAddress(bootstrap_servers="127.0.0.1:1")
PLAN = VerifyPlan(source=NOWHERE, destination=NOWHERE, source_topic="a", mirror_topic="b")


def side(value: bytes | None) -> dict[str, object]:
    return {"key": b"k", "value": value, "headers": None, "timestamp_ms": 1, "timestamp_type": 0}


def shown(source: bytes | None, mirror: bytes | None) -> tuple[str | None, str | None]:
    row = {"partition": 0, "offset": 0, "kind": "value", "source_record": side(source), "mirror_record": side(mirror)}
    difference = difference_of(row)
    return difference.source_value, difference.mirror_value


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_different_values_are_shown_short_printable_and_different(source: bytes, mirror: bytes) -> None:
    left, right = shown(source, mirror)

    assert left is not None
    assert right is not None
    assert (left == right) == (source == mirror)
    assert (left + right).isprintable()
    assert max(len(left), len(right)) < 300


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (b"", ""),
        (b"caf\xc3\xa9", "café"),
        (b"\x00\xff\n", "\\x00\\xff\\n"),
        (b"x" * 70, "x" * 60 + "… (70 bytes)"),
    ],
)
def test_a_value_is_shown_as_text_if_possible(value: bytes | None, expected: str) -> None:
    assert shown(value, b"?")[0] == expected


def test_a_header_name_is_shown_as_text() -> None:
    sides = [{**side(None), "headers": [{"key": key, "value": b"1"}]} for key in ("a\0b\n", "caf\u00e9")]

    difference = difference_of(
        {"partition": 0, "offset": 0, "kind": "headers", "source_record": sides[0], "mirror_record": sides[1]}
    )

    assert (difference.source_value, difference.mirror_value) == ("a\\x00b\\n=1", "caf\u00e9=1")


@pytest.mark.parametrize(
    ("trace", "code"),
    [
        ("... org.apache.kafka.common.errors.TimeoutException: Timed out", ErrorCode.TIMEOUT_ERROR),
        ("... SaslAuthenticationException: password=hush", ErrorCode.AUTHENTICATION_ERROR),
        ("... No resolvable bootstrap urls given", ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR),
        ("java.lang.NullPointerException password=hush", ErrorCode.INTERNAL_ERROR),
    ],
)
def test_the_error_of_a_failed_query_quotes_no_settings(trace: str, code: ErrorCode) -> None:
    error = failure_of(RuntimeError(trace), plan=PLAN)

    assert error.code is code
    assert "hush" not in error.message
