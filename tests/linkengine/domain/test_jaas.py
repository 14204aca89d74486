"""``sasl.jaas.config`` as Kafka's Java clients parse it (3.9 and 4.3 were tried with the same lines)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.client_properties import parse_jaas, write_jaas
from linkengine.domain.errors import ErrorCode, LinkEngineError

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ('username="u" password="p"', {"username": "u", "password": "p"}),
        ("username='u' password='p\"q'", {"username": "u", "password": 'p"q'}),
        ("username=u-1 password=p_2.x", {"username": "u-1", "password": "p_2.x"}),
        (r'password="a\"b\\c\'d"', {"password": "a\"b\\c'd"}),
        (r'password="\n\t\101\7\x"', {"password": "\n\tA\ax"}),
        ('password="=;,//#"', {"password": "=;,//#"}),
        ('\n  username = "u"\n\tpassword ="p" ', {"username": "u", "password": "p"}),
        ('username="u" /* c */ password="p" // rest', {"username": "u", "password": "p"}),
        ("password='ä€😀'", {"password": "ä€😀"}),
        ("password=ä€😀", {"password": "ä€😀"}),
        ('username="a" username="b"', {"username": "b"}),
        ("", {}),
    ],
)
def test_options_are_parsed(options: str, found: dict[str, str]) -> None:
    line = parse_jaas(f"org.example.PlainLoginModule required {options}\n;")

    assert (line.module, dict(line.options)) == ("PlainLoginModule", found)


@given(st.dictionaries(st.sampled_from(["username", "password", "scope"]), text))
def test_options_survive_writing_and_parsing(options: dict[str, str]) -> None:
    assert dict(parse_jaas(write_jaas("a.b.Module", options)).options) == options


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Module",
        "Module hunter2;",
        'Module required password="hunter2',
        'Module required password="hunter2\n";',
        "Module required password hunter2;",
        "Module required password=;",
        "Module required =hunter2;",
        "Module required password=1hunter2;",
        'Module required password="hunter2"; Other required;',
        'password="hunter2"',
        "Module required password=hunter2 {",
    ],
)
def test_an_invalid_line_is_refused_without_repeating_it(line: str) -> None:
    with pytest.raises(LinkEngineError, match=r"sasl\.jaas\.config") as refused:
        parse_jaas(line)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert "hunter2" not in refused.value.message
