"""Regular expressions that people send to choose mirror topics. One that is too long or too slow is refused, never cut."""

from __future__ import annotations

import time
from collections.abc import Iterable

import regex

from console.errors import InvalidInputError

FIELD = "mirror_topic_name_pattern"
MOST_CHARACTERS = 4_000
MOST_S = 1.0  # for all names together: some expressions take ages


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Answer the names that match as a whole; raise InvalidInputError for what is no expression, too long or too slow."""
    if len(pattern) > MOST_CHARACTERS:
        raise InvalidInputError(
            f"The pattern has {len(pattern):,} characters, at most {MOST_CHARACTERS:,} are taken. Name the topics instead.",
            field=FIELD,
        )
    deadline = time.monotonic() + MOST_S
    try:
        expression = regex.compile(pattern)
        return [name for name in names if expression.fullmatch(name, timeout=max(1e-3, deadline - time.monotonic()))]
    except (regex.error, OverflowError) as error:
        raise InvalidInputError(f"The pattern is no regular expression: {error}.", field=FIELD) from None
    except TimeoutError:
        raise InvalidInputError(
            f"The pattern takes longer than {MOST_S:.0f} s. Use a simpler one, without nested repetitions.", field=FIELD
        ) from None
