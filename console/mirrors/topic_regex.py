"""Selects topic names by a regular expression from a request.

The engine is RE2: matching takes linear time in the length of the name, and memory is bounded. An engine with backtracking or
recursion must not run expressions from users: ``(?:(?R)|a)*`` took 650 MB in an engine that has both.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import re2

from console.errors import InvalidInputError

FIELD = "mirror_topic_name_pattern"
MOST_CHARACTERS = 4_000
MOST_MEMORY = 2 << 20  # bytes of the compiled expression and of its cached states
MOST_S = 1.0  # for all names together: a name takes at most 50 ms with an expression that fits into MOST_MEMORY
_SYNTAX = (
    "RE2 syntax applies: no back references, no look-around, no atomic groups or possessive quantifiers, no recursion, and at "
    "most 1,000 repetitions, nested ones multiplied."
)


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that match as a whole. Raise InvalidInputError if the expression is invalid, too long or too slow."""
    if len(pattern) > MOST_CHARACTERS:
        raise InvalidInputError(
            f"The pattern has {len(pattern):,} characters; the maximum is {MOST_CHARACTERS:,}. List the topics instead.",
            field=FIELD,
        )
    deadline = time.monotonic() + MOST_S
    expression = _compile(pattern)
    found = []
    for name in names:
        if expression.fullmatch(name):
            found.append(name)
        if time.monotonic() > deadline:
            raise InvalidInputError(
                f"Matching the pattern takes longer than {MOST_S:.0f} s. Use a simpler one, without nested repetitions.",
                field=FIELD,
            )
    return found


def _compile(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_MEMORY
    options.never_capture = True  # RE2 without groups needs no NFA pass to find their positions
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise InvalidInputError(f"The pattern is not a regular expression: {reason}. {_SYNTAX}", field=FIELD) from None
    except UnicodeEncodeError:  # JSON can carry half of a surrogate pair
        raise InvalidInputError("The pattern is not valid Unicode text. Topic names are ASCII.", field=FIELD) from None
    finally:
        re2.purge()  # the module would cache 128 expressions, each with up to MOST_MEMORY
