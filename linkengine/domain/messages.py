"""English texts that a page can show in another language.

The engine writes English and translates nothing. A ``TranslatableText`` is its English text: REST, logs and the database use it
as it is; it also keeps the format and the values it was made from, which are enough to translate it. ``make messages`` enters
the formats in the catalog of the console, because it looks for calls of functions with these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any


class TranslatableText(str):
    """An English text with its format, ``text``, and its values, which can be messages too.

    A format that depends on a number has the form for other numbers than 1 in ``plural``.
    """

    __slots__ = ("number", "plural", "text", "values")

    text: str
    plural: str
    number: int
    values: dict[str, str]

    @classmethod
    def create(cls, text: str, plural: str = "", number: int = 1, values: Mapping[str, str] | None = None) -> TranslatableText:
        """Return the message with these parts."""
        known = dict(values or {})
        message = cls((plural if plural and number != 1 else text) % known)
        message.text, message.plural, message.number, message.values = text, plural, number, known
        return message


def gettext_noop(text: str) -> str:
    """Return a format as it is, which ``gettext_lazy`` is called with elsewhere."""
    return text


def gettext_lazy(text: str, /, **values: object) -> TranslatableText:
    """Return a message with a format and its values."""
    return TranslatableText.create(text, values=_as_texts(values)) if values else _constant(text)


def ngettext_lazy(singular: str, plural: str, number: int, /, **values: object) -> TranslatableText:
    """Return a message with a format that depends on a number, which is also the value ``count``."""
    return TranslatableText.create(singular, plural, number, {"count": f"{number:,}", **_as_texts(values)})


def join_messages(separator: str, messages: Iterable[str]) -> TranslatableText:
    """Return texts, each of which can be a message, as one message."""
    values = {f"part{position}": message for position, message in enumerate(messages)}
    return TranslatableText.create(separator.join(f"%({name})s" for name in values), values=values)


def listed_names(names: Sequence[str], *, most: int) -> str:
    """Return the first names in quotation marks, and how many more there are."""
    listed = ", ".join(f"'{name}'" for name in names[:most])
    more = len(names) - most
    return gettext_lazy("%(listed)s and %(count)s more", listed=listed, count=more) if more > 0 else listed


def dumped(text: str) -> Any:
    """Return a text as a value for JSON, from which ``loaded`` makes the same message again."""
    if not isinstance(text, TranslatableText):
        return str(text)
    values = {name: dumped(value) for name, value in text.values.items()}
    return {"text": text.text, "plural": text.plural, "number": text.number, "values": values}


def loaded(stored: Any) -> str:
    """Return the text for which ``dumped`` returned this value."""
    if not isinstance(stored, dict):
        return str(stored)
    values = {name: loaded(value) for name, value in stored["values"].items()}
    return TranslatableText.create(stored["text"], stored["plural"], stored["number"], values)


@cache
def _constant(text: str) -> TranslatableText:
    """Return the message without values; a page has the same findings for thousands of topics."""
    return TranslatableText.create(text)


def _as_texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else str(value) for name, value in values.items()}
