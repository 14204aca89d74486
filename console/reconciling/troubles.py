"""Why something does not get on: rows of StateTransitionError that come with a cause and go with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.db.models import F

from console.models import MirrorTopic, StateTransitionError
from console.models.mirrors import KEPT


def note(*, mirror: MirrorTopic, code: str, message: str, now: datetime) -> bool:
    """Add or renew one error; answer whether a page would show something new."""
    known = StateTransitionError.objects.filter(mirror=mirror, code=code).first()
    if known is None:
        StateTransitionError.objects.create(mirror=mirror, code=code, message=message, since=now, last_seen_at=now)
        return True
    changed = known.message != message
    StateTransitionError.objects.filter(pk=known.pk).update(message=message, last_seen_at=now, count=F("count") + 1)
    return changed


def replace(*, mirror: MirrorTopic, errors: Mapping[str, str], now: datetime) -> bool:
    """Keep exactly these errors (code to message); answer whether a page would show something new."""
    changed = clear(mirror=mirror, keep=errors)
    for code, message in errors.items():
        changed |= note(mirror=mirror, code=code, message=message, now=now)
    return changed


def clear(*, mirror: MirrorTopic, keep: Iterable[str] = ()) -> bool:
    """Remove errors whose cause is gone; lost records stay lost, different ones different."""
    gone, _ = mirror.transition_errors.exclude(code__in=[*keep, *KEPT]).delete()
    return bool(gone)


def clear_many(*, mirrors: Sequence[MirrorTopic]) -> None:
    """Do for many what ``clear`` does for one."""
    StateTransitionError.objects.filter(mirror__in=mirrors).exclude(code__in=KEPT).delete()


def end(*, mirror: MirrorTopic, codes: Iterable[str]) -> bool:
    """Remove these errors: they were not seen again at the last look; answer whether there were any."""
    gone, _ = mirror.transition_errors.filter(code__in=list(codes)).delete()
    return bool(gone)


def since(*, mirror: MirrorTopic, code: str) -> datetime | None:
    """Answer since when an error has been seen without a break."""
    return StateTransitionError.objects.filter(mirror=mirror, code=code).values_list("since", flat=True).first()
