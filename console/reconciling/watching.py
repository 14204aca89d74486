"""Schedules continuous verification: rows of VerifyWatch, a single comparison at a time in the whole installation."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from console.models import ClusterLink, MirrorTopic, VerifyWatch
from console.models.links import show_change
from console.models.mirrors import AHEAD
from console.queries.verification import WATCHED, continuous_links
from console.reconciling.plans import config_of
from linkengine.domain.linkconfigs import LINK_CONFIGS

REST = 4  # pause after a comparison, as a multiple of its duration: copying needs the machine more
AT_ONCE = 50  # mirrors per pass


def ensure_watches(*, now: datetime) -> None:
    """Create the row of each mirror that is compared. The first comparison follows after an interval."""
    new = MirrorTopic.objects.listed().filter(verify_watch=None, state__in=WATCHED, deletion_requested_at=None)
    new = new.filter(link__in=continuous_links())
    rows = [VerifyWatch(mirror=mirror, next_at=now + interval(mirror.link)) for mirror in new.with_links()[:AT_ONCE]]
    if rows:
        VerifyWatch.objects.bulk_create(rows, ignore_conflicts=True)


def next_due(*, now: datetime) -> VerifyWatch | None:
    """Return the row whose turn it is; mirrors of links without continuous verification have none.

    A finish time in the future was stored before a clock was set back, and its next time is as far in the future.
    """
    due = VerifyWatch.objects.filter(Q(next_at__lte=now) | Q(finished_at__gt=now + AHEAD), mirror__state__in=WATCHED)
    due = due.filter(mirror__deletion_requested_at=None, mirror__link__in=continuous_links())
    return due.select_related("mirror").order_by("next_at", "pk").first()


def note_attempt(*, mirror: MirrorTopic, started_at: datetime, now: datetime, error: str = "") -> None:
    """Store when the next range is due and the error of this attempt, if any. It is retried in any case."""
    took = now - started_at
    VerifyWatch.objects.filter(mirror=mirror).update(
        next_at=now + max(interval(mirror.link), REST * took),
        finished_at=now,
        duration_ms=round(took.total_seconds() * 1000),
        error_message=error,
    )
    show_change(mirror.link_id)


def interval(link: ClusterLink) -> timedelta:
    """Return ``verify.interval.ms``."""
    return timedelta(milliseconds=int(_value(link, "verify.interval.ms")))


def most_records(link: ClusterLink) -> int:
    """Return ``verify.max.records.per.run``."""
    return int(_value(link, "verify.max.records.per.run"))


def _value(link: ClusterLink, name: str) -> str:
    return config_of(link, name) or LINK_CONFIGS[name].default or ""
