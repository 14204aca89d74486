r"""Read and write ``sasl.jaas.config``: ``<login module> <control flag> <option>=<value> …;``.

Kafka reads it with Java's ``StreamTokenizer`` (class ``JaasConfig``): values are words or strings in single or double quotes.
Within quotes a backslash escapes a quote and itself, ``\n`` and the like are control characters, ``\101`` is an octal code, and
a line break ends the string. Messages never repeat the line, since it holds a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from linkengine.domain.errors import ErrorCode, LinkEngineError

_TOKEN = re.compile(
    r"""
      (?P<skip> [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\n\r]* )
    | (?P<quote> "(?:\\.|[^"\\\n\r])*" | '(?:\\.|[^'\\\n\r])*' )
    | (?P<word> [A-Za-z_$\u00a0-\U0010ffff][\w.$\u00a0-\U0010ffff-]* )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLine:
    """One entry: the simple name of the login module's class, and its options."""

    module: str
    options: Mapping[str, str]


def parse_jaas(line: str) -> LoginLine:
    """Return the entry; raise MISCONFIGURATION_ERROR for what Kafka's clients cannot read, and for several login modules."""
    tokens = _tokens(line)
    if len(tokens) < 2 or tokens[0][0] != "word" or tokens[1][0] != "word" or tokens[1][1].lower() not in _FLAGS:
        raise _malformed("it begins with the class of a login module and the word required")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ("sign", ";"):
        (kind, name), sign, value = (*tokens[at : at + 3], *[("", "")] * 3)[:3]
        if kind == "sign" or sign != ("sign", "=") or value[0] not in ("word", "quote"):
            raise _malformed(f"what follows option {len(options)} is no option with a value")
        options[name], at = value[1], at + 3
    if at < len(tokens) - 1:
        raise _malformed("one login module is supported, ended by a semicolon")
    return LoginLine(module=tokens[0][1].rpartition(".")[2], options=options)


def write_jaas(module: str, options: Mapping[str, str]) -> str:
    """Return the line, values in double quotes."""
    words = " ".join(f'{name}="{_escaped(value)}"' for name, value in options.items())
    return f"{module} required {words};"


def _tokens(line: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise _malformed("a value is a word or a string in quotes, and a string ends on the line where it begins")
        kind, at = str(match.lastgroup), match.end()
        if kind != "skip":
            found.append((kind, _unquoted(match[0]) if kind == "quote" else match[0]))
    return found


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text[1:-1])


def _character(escaped: str) -> str:
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _LETTERS.get(escaped, escaped)


def _escaped(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f"\\{ord(letter):03o}" if letter < " " else letter for letter in plain)


def _malformed(why: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MISCONFIGURATION_ERROR,
        f'sasl.jaas.config cannot be read: {why}. Write …LoginModule required username="…" password="…"; with a backslash '
        "before each quote and backslash of a value.",
    )
