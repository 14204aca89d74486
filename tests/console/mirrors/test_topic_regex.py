"""Regular expressions in requests: whole names match, and no expression takes much time or memory."""

from __future__ import annotations

import resource
import time
from contextlib import suppress

import pytest

from console.errors import InvalidInputError
from console.mirrors.rules import MOST_CHARACTERS, matching

LONG_NAMES = ["a" * 249] * 2_000
NOT_SUPPORTED = ["(?:(?R)|a)*", r"(a)\1", "(?=a)a", "(?!b)a", "(?<=a)b", "(?<!a)b", "(?>a)", "a++", "(?P<x>a)(?P=x)", r"a\Z"]
TOO_LARGE = ["a{1001}", "(?:a{1000}){1000}", "((((a{10}){10}){10}){10}){10}", r"\pL{1000}"]
COSTLY = ["(?:(?:a|aa)+)+b", "(a|aa)+b", "(.*)" * 1_000, "(?:a?){1000}", "|".join(["(.*a.*)"] * 500), "(a*b?){1000}" * 2]


def test_only_whole_names_match() -> None:
    assert matching(["orders", "orders-2", "my-orders"], "orders(-.*)?") == ["orders", "orders-2"]


def test_every_name_of_a_long_alternation_matches() -> None:
    names = [f"orders-of-warehouse-{number}" for number in range(100)]

    assert matching([*names, "orders", "ord"], "|".join(names)) == names


def test_300_nested_groups_match() -> None:
    assert matching(["a", "b"], "(" * 300 + "a" + ")" * 300) == ["a"]


@pytest.mark.parametrize("pattern", [*NOT_SUPPORTED, *TOO_LARGE, "(", "*", "["])
def test_unsupported_expression_is_refused_with_the_supported_syntax(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is not a regular expression: .*no back references, no look-around"):
        matching(["a"], pattern)


@pytest.mark.parametrize("pattern", ["\ud800", "a\udfff*"])
def test_lone_surrogate_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match="not valid Unicode"):
        matching(["a"], pattern)


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="4,001 characters"):
        matching(["a"], "a" * (MOST_CHARACTERS + 1))


@pytest.mark.parametrize("pattern", [*COSTLY, *NOT_SUPPORTED, *TOO_LARGE, "(" * 1_999 + ")" * 1_999])
def test_no_expression_takes_much_time_or_memory(pattern: str) -> None:
    before_kb, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()

    with suppress(InvalidInputError):
        matching(LONG_NAMES, pattern)

    assert time.process_time() - began < 5.0  # a backtracking engine would take hours
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 32 << 10


def test_refused_and_accepted_expressions_leave_no_memory_behind() -> None:
    matching(LONG_NAMES[:1], "a*")
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for number in range(300):
        matching(LONG_NAMES[:1], f"(?:a?){{{700 + number}}}")

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 32 << 10
