"""Current errors of mirrors: rows of StateTransitionError, which are removed with their cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.db.models import F

from console.models import MirrorTopic, StateTransitionError
from console.models.mirrors import KEPT


def note(*, mirror: MirrorTopic, code: str, message: str, now: datetime) -> bool:
    """Add or renew an error. Returns whether a page would show something new."""
    known = StateTransitionError.objects.filter(mirror=mirror, code=code).first()
    if known is None:
        StateTransitionError.objects.create(mirror=mirror, code=code, message=message, since=now, last_seen_at=now)
        return True
    changed = known.message != message
    StateTransitionError.objects.filter(pk=known.pk).update(message=message, last_seen_at=now, count=F("count") + 1)
    return changed


def replace(*, mirror: MirrorTopic, errors: Mapping[str, str], now: datetime) -> bool:
    """Set exactly these errors (code to message). Returns whether a page would show something new."""
    changed = clear(mirror=mirror, keep=errors)
    for code, message in errors.items():
        changed |= note(mirror=mirror, code=code, message=message, now=now)
    return changed


def clear(*, mirror: MirrorTopic, keep: Iterable[str] = ()) -> bool:
    """Remove all errors except those that do not end with the state of the copy: lost records, differences (``KEPT``)."""
    gone, _ = mirror.transition_errors.exclude(code__in=[*keep, *KEPT]).delete()
    return bool(gone)


def clear_many(*, mirrors: Sequence[MirrorTopic]) -> None:
    """Do what ``clear`` does for many mirrors."""
    StateTransitionError.objects.filter(mirror__in=mirrors).exclude(code__in=KEPT).delete()


def end(*, mirror: MirrorTopic, codes: Iterable[str]) -> bool:
    """Remove these errors, since the last check did not find them. Returns whether there were any."""
    gone, _ = mirror.transition_errors.filter(code__in=list(codes)).delete()
    return bool(gone)


def since(*, mirror: MirrorTopic, code: str) -> datetime | None:
    """Return since when an error has been reported without interruption."""
    return StateTransitionError.objects.filter(mirror=mirror, code=code).values_list("since", flat=True).first()
