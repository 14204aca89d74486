"""English texts that keep their format and values."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from linkengine.domain.messages import (
    TranslatableText,
    dumped,
    gettext_lazy,
    join_messages,
    listed_names,
    loaded,
    ngettext_lazy,
)

AGE = gettext_lazy("%(span)s ago", span=gettext_lazy("%(number)s d", number=3))
COUNTED = ngettext_lazy("%(count)s topic compared %(age)s", "%(count)s topics compared %(age)s", 1_200, age=AGE)


def parts(message: str) -> object:
    """Return all that a translation needs."""
    if not isinstance(message, TranslatableText):
        return message
    return message.text, message.plural, message.number, {name: parts(value) for name, value in message.values.items()}


def test_a_message_is_its_english_text() -> None:
    assert COUNTED == "1,200 topics compared 3 d ago"
    assert ngettext_lazy("%(count)s topic", "%(count)s topics", 1) == "1 topic"
    assert json.dumps({"message": COUNTED}) == '{"message": "1,200 topics compared 3 d ago"}'
    assert f"{AGE}!" == "3 d ago!"


def test_a_message_keeps_its_format_and_values() -> None:
    age = ("%(span)s ago", "", 1, {"span": ("%(number)s d", "", 1, {"number": "3"})})

    assert parts(COUNTED) == (
        "%(count)s topic compared %(age)s",
        "%(count)s topics compared %(age)s",
        1_200,
        {"count": "1,200", "age": age},
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_a_copy_is_the_same_message(copied: object) -> None:
    again = copied(COUNTED)  # type: ignore[operator]

    assert (again, parts(again)) == (COUNTED, parts(COUNTED))


@pytest.mark.parametrize("text", [COUNTED, AGE, "an error of a broker", "", join_messages("; ", ["100 %", AGE])])
def test_a_stored_message_is_loaded_as_it_was(text: str) -> None:
    again = loaded(json.loads(json.dumps(dumped(text))))

    assert (again, parts(again)) == (text, parts(text))


def test_a_value_can_have_any_characters() -> None:
    assert gettext_lazy("Topic '%(topic)s' is gone.", topic="100%(count)s") == "Topic '100%(count)s' is gone."


def test_joined_messages_keep_their_parts() -> None:
    joined = join_messages("; ", [AGE, "no message"])

    assert joined == "3 d ago; no message"
    assert list(map(parts, joined.values.values())) == [parts(AGE), "no message"]


def test_names_beyond_the_most_are_counted() -> None:
    assert listed_names(["a", "b"], most=2) == "'a', 'b'"
    assert listed_names(["a", "b", "c", "d"], most=2) == "'a', 'b' and 2 more"
