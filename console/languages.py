"""Texts of the engine and stored texts, which are English, on pages in another language.

A ``TranslatableText`` of the engine is translated. Any other English sentence is shown as it is, marked as English, so that a
screen reader pronounces it correctly (WCAG 3.1.2). ``mark_english`` is available in all templates.
"""

from __future__ import annotations

import re

from django.template import Library
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeData
from django.utils.translation import get_language, gettext, ngettext

from linkengine.domain.messages import TranslatableText

register = Library()
_WORDS = re.compile(r"[!-~]+(?: [!-~]+)+")  # of ASCII characters, with a space between each two
_LOWER = re.compile(r"[a-z]{2}[!-~]*")


def translated(text: str) -> str:
    """Return a message of the engine in the language of the page; any other text as it is."""
    if not isinstance(text, TranslatableText):
        return text
    values = {name: translated(value) for name, value in text.values.items()}
    return (ngettext(text.text, text.plural, text.number) if text.plural else gettext(text.text)) % values


@register.filter
def mark_english(text: object) -> object:
    """Return a text in which all English on a page in another language is in elements with ``lang="en"``.

    English are at least two words in lower case, which excludes names, numbers and times. A text that is translated as a whole
    is not changed, nor is any text on a page in English.
    """
    words = str(text)
    if get_language() in (None, "en") or isinstance(words, SafeData):
        return text
    parts, end = [], 0
    for run in _WORDS.finditer(words):
        if len(_LOWER.findall(run[0])) > 1:
            parts += [conditional_escape(words[end : run.start()]), format_html('<span lang="en">{}</span>', run[0])]
            end = run.end()
    return format_html_join("", "{}", ((part,) for part in (*parts, words[end:]))) if parts else text
