"""Polls of pages: 204 while an open page is up to date.

A page states in a hidden field ``seen`` which versions of its rows it shows. Its next poll sends the field back, and
``is_unchanged`` compares it with the versions now, so an unchanged page reads only versions. Three kinds of changes have no
version, and the page is drawn again for each of them:

| change | drawn again |
|---|---|
| relative times, lags and rates | after ``REFRESH`` |
| a health that can change by time alone, such as by silence (``HealthStatus.steady``) | after ``UNSTEADY`` |
| the language of the user | immediately; it is part of the versions |
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.http import HttpRequest
from django.utils.translation import get_language

from console.web.forms import fingerprint

REFRESH = timedelta(seconds=5)  # an unchanged page is drawn at this interval; less than ``health.STEADY_MS``
UNSTEADY = timedelta(seconds=1.5)  # shorter than two seconds, the longest interval of polls, and longer than one
_MOST_DIGITS = 15  # of a time in a token; int() rejects strings of more than 4300 digits


def seen_token(*versions: object, now: datetime, steady: bool = True) -> str:
    """Return a page's versions, which its next poll sends back. ``steady``: whether time alone changes no health on it."""
    until = now + (REFRESH if steady else UNSTEADY)
    return f"{_digest(versions)}:{int(until.timestamp() * 1000)}"


def is_unchanged(request: HttpRequest, *versions: object, now: datetime) -> bool:
    """Return whether the page that polls is up to date."""
    digest, _, until = request.GET.get("seen", "").partition(":")
    if not (request.htmx and until.isdecimal()):  # type: ignore[attr-defined]
        return False
    left_ms = int(until[:_MOST_DIGITS]) - now.timestamp() * 1000
    return 0 < left_ms <= REFRESH.total_seconds() * 1000 and digest == _digest(versions)


def _digest(versions: tuple[object, ...]) -> str:
    return fingerprint(*map(str, versions), str(get_language()))
