"""Expressions that choose mirror topics: whole names, and nothing is cut or left waiting."""

from __future__ import annotations

import pytest

from console.errors import InvalidInputError
from console.patterns import MOST_CHARACTERS, matching


def test_whole_names_match() -> None:
    assert matching(["orders", "orders-2", "my-orders"], "orders(-.*)?") == ["orders", "orders-2"]


def test_every_name_of_a_long_alternation_matches_and_nothing_that_nobody_named() -> None:
    names = [f"orders-of-warehouse-{number}" for number in range(100)]

    assert matching([*names, "orders", "ord"], "|".join(names)) == names


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "no regular expression"),
        ("a" * (MOST_CHARACTERS + 1), "4,001 characters"),
        ("(a|aa)+", "longer than 1 s"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(pattern: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        matching(["a" * 200 + "b" * 49], pattern)
