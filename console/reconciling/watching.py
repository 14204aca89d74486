"""When which mirror's next range is compared: rows of VerifyWatch, one comparison at a time on the whole installation."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from console.models import ClusterLink, MirrorTopic, VerifyWatch
from console.models.links import show_change
from console.models.mirrors import AHEAD
from console.queries.verification import WATCHED, is_continuous
from console.reconciling.plans import config_of
from console.sharing import with_links
from linkengine.domain.linkconfigs import LINK_CONFIGS

REST = 4  # times a comparison's duration passes before the mirror's next one: the copy needs the machine more
AT_ONCE = 50  # mirrors looked at per round


def ensure_watches(*, now: datetime) -> None:
    """Give every mirror that is copied its row; the first comparison comes after one interval."""
    new = MirrorTopic.objects.filter(verify_watch=None, state__in=WATCHED, deletion_requested_at=None, drill=None)
    rows = [VerifyWatch(mirror=one, next_at=now + interval(one.link)) for one in with_links(new)[:AT_ONCE]]
    if rows:
        VerifyWatch.objects.bulk_create(rows, ignore_conflicts=True)


def next_due(*, now: datetime) -> VerifyWatch | None:
    """Answer whose turn it is; mirrors of links that do not want it are put off.

    What was compared ahead of now was so before a clock was set back, and its next time is as far ahead.
    """
    due = VerifyWatch.objects.filter(Q(next_at__lte=now) | Q(finished_at__gt=now + AHEAD), mirror__state__in=WATCHED)
    due = due.filter(mirror__deletion_requested_at=None).order_by("next_at", "pk")
    for watch in due.select_related("mirror").prefetch_related("mirror__link__configs")[:AT_ONCE]:
        if is_continuous(link=watch.mirror.link):
            return watch
        VerifyWatch.objects.filter(pk=watch.pk).update(next_at=now + interval(watch.mirror.link))
    return None


def note_attempt(*, mirror: MirrorTopic, started_at: datetime, now: datetime, error: str = "") -> None:
    """Say when the next range is due, and what went wrong, if anything; it is tried again in any case."""
    took = now - started_at
    VerifyWatch.objects.filter(mirror=mirror).update(
        next_at=now + max(interval(mirror.link), REST * took),
        finished_at=now,
        duration_ms=round(took.total_seconds() * 1000),
        error_message=error,
    )
    show_change(mirror.link_id)


def interval(link: ClusterLink) -> timedelta:
    """Answer ``verify.interval.ms``."""
    return timedelta(milliseconds=int(_value(link, "verify.interval.ms")))


def most_records(link: ClusterLink) -> int:
    """Answer ``verify.max.records.per.run``."""
    return int(_value(link, "verify.max.records.per.run"))


def _value(link: ClusterLink, name: str) -> str:
    return config_of(link, name) or LINK_CONFIGS[name].default or ""
