"""A page of a long list of mirrors, and the figures of a whole link.

The database filters, sorts and cuts, and partitions are read for the rows of the page only. The newest lag, age and rate are in
Redis: a list in their order and the figures of a link read all partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    IntegerField,
    OrderBy,
    OuterRef,
    Q,
    Subquery,
    Value,
    When,
    Window,
    prefetch_related_objects,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from console.access import links_with_sight, visible_mirrors
from console.actors import Actor
from console.links.health_queries import Observation
from console.mirrors import progress
from console.mirrors.progress import CurrentMirror
from console.mirrors.queries import MirrorSummary, summarize
from console.models import ClusterLink, MirrorPartition, MirrorTopic, SourceTopic, StateTransitionError
from console.models.mirrors import MirrorTopicQuerySet
from linkengine.domain.states import MirrorState

_FIRST = (
    MirrorState.FAILED,
    MirrorState.LINK_FAILED,
    MirrorState.SOURCE_UNAVAILABLE,
    MirrorState.PENDING_STOPPED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPage:
    """Some rows of a list and the total number of rows."""

    rows: Sequence[MirrorSummary]
    total: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFigures:
    """Totals over the visible mirrors of a link; lag and rates of those that are not stopped. Unknown is None, never 0."""

    mirrors: int
    partitions: int
    max_lag: int | None  # of the partitions whose lag is known
    unknown_lags: int  # partitions whose lag is unknown, and mirrors without partitions yet
    oldest_lag_ms: int | None
    bytes_per_s: float | None
    records_per_s: float | None


def mirror_page(  # noqa: PLR0913 - by name, with defaults
    *,
    by: Actor,
    link: ClusterLink | None = None,
    search: str = "",
    state: str = "",
    names: Sequence[str] | None = None,
    only: Literal["", "unstopped", "stoppable"] = "",
    order: str = "",
    start: int = 0,
    size: int = 50,
    severities: Mapping[int, int] = MappingProxyType({}),
    at_risk: Mapping[int, int | None] = MappingProxyType({}),
    current: Iterable[CurrentMirror] = (),
) -> MirrorPage:
    """Return a page of mirrors; ``order`` is name, state, health, lag, age, rate, since or risk, with "-" for the reverse.

    Two queries, and two more for links and configs. The order by health needs ``severities`` (0 is the worst), that by risk
    ``at_risk``, the records at risk; both by primary key. A start beyond the end returns the last page. Without an order,
    mirrors that need attention come first. ``only``: those of this method of ``MirrorTopicQuerySet``, with
    ``source_partitions``, the number of partitions of the source topic as last listed. ``current`` are mirrors whose progress
    was read; partitions of the others are read here.
    """
    now = timezone.now()
    found = _filtered(visible_mirrors(by), link=link, search=search, state=state, names=names)
    if only:
        found = found.stoppable() if only == "stoppable" else found.unstopped()
        topics = SourceTopic.objects.filter(link=OuterRef("link"), name=OuterRef("source_topic")).order_by()
        found = found.annotate(source_partitions=Subquery(topics.values("partitions")[:1]))
    if order.removeprefix("-") in (*_FIGURES, _RISK):
        chosen = bool(search or state) or names is not None or bool(only)
        keys = None if chosen or not severities else set(severities)
        reading: dict[str, Any] = {"link": link, "by": by, "start": start, "size": size, "now": now}
        return _page_by_figure(found, order, **reading, at_risk=at_risk, current=current, keys=keys)
    ordered = _ordered(found, order, severities).annotate(total=Window(Count("pk")), error_rows=_error_rows())
    rows = _read(ordered, start, size, link=link, by=by)
    if not rows and start:
        start = _last_start(found.count(), size)
        rows = _read(ordered, start, size, link=link, by=by)
    known = {mirror.pk: mirror.partitions for mirror in current}
    unread = [mirror for mirror in rows if mirror.pk not in known]
    prefetch_related_objects(unread, "partitions")
    progress.refresh(unread, now=now)
    return MirrorPage(
        rows=[summarize(mirror, now=now, errors=_errors_of(mirror), partitions=known.get(mirror.pk)) for mirror in rows],
        total=rows[0].total if rows else 0,  # type: ignore[attr-defined]
        start=start,
    )


def link_figures(seen: Observation, *, now: datetime) -> LinkFigures:
    """Return the totals of the mirrors that were observed."""
    return LinkFigures(
        mirrors=len(seen.health.mirrors),
        partitions=seen.health.partitions,
        max_lag=seen.total.max_lag,
        unknown_lags=seen.total.hidden,
        oldest_lag_ms=seen.total.oldest_ms(now),
        bytes_per_s=seen.total.bytes_per_s,
        records_per_s=seen.total.records_per_s,
    )


def _read(mirrors: MirrorTopicQuerySet, start: int, size: int, *, link: ClusterLink | None, by: Actor) -> list[MirrorTopic]:
    """Return mirrors with their links; ``link`` is that of all of them, if it was read."""
    if link is None:
        return list(mirrors.with_links(links_with_sight(by))[start : start + size])
    found = list(mirrors[start : start + size])
    prefetch_related_objects([link] if found else [], "configs")
    for mirror in found:
        mirror.link = link
    return found


def _is_troubled() -> Q:
    """Return the condition for mirrors with an error, whatever their state."""
    return Q(Exists(StateTransitionError.objects.filter(mirror=OuterRef("pk")))) | ~Q(error_code="")


def _filtered(
    mirrors: MirrorTopicQuerySet, *, link: ClusterLink | None, search: str, state: str, names: Sequence[str] | None
) -> MirrorTopicQuerySet:
    if link is not None:
        mirrors = mirrors.filter(link=link)
    if search:
        mirrors = mirrors.filter(Q(name__icontains=search) | Q(source_topic__icontains=search))
    if state:
        mirrors = mirrors.filter(state=state)
    return mirrors if names is None else mirrors.filter(name__in=names)


def _ordered(mirrors: MirrorTopicQuerySet, order: str, severities: Mapping[int, int]) -> MirrorTopicQuerySet:
    name, reverse = order.removeprefix("-"), order.startswith("-")
    if name == "health":
        return _worst_first(mirrors, severities, reverse=reverse)
    if name in {"name", "state", "since"}:
        column = {"name": "name", "state": "state", "since": "state_since"}[name]
        return mirrors.order_by(OrderBy(F(column), descending=reverse), "name")
    states = (When(state=state, then=Value(rank)) for rank, state in enumerate(_FIRST))
    erring = When(_is_troubled(), then=Value(len(_FIRST)))
    return mirrors.order_by(Case(*states, erring, default=Value(len(_FIRST) + 1)), "name")


def _worst_first(mirrors: MirrorTopicQuerySet, severities: Mapping[int, int], *, reverse: bool) -> MirrorTopicQuerySet:
    """Sort by severity and name. The most frequent severity is the default, which keeps the SQL short."""
    by_severity: dict[int, list[int]] = defaultdict(list)
    for pk, severity in severities.items():
        by_severity[severity].append(pk)
    usual = max(by_severity, key=lambda severity: len(by_severity[severity]), default=0)
    ranks = [When(pk__in=pks, then=Value(severity)) for severity, pks in by_severity.items() if severity != usual]
    rank = Case(*ranks, default=Value(usual), output_field=IntegerField())
    return mirrors.annotate(severity=rank).order_by(OrderBy(F("severity"), descending=reverse), "name")


def _last_start(total: int, size: int) -> int:
    return max(0, (total - 1) // size * size)


def _page_by_figure(  # noqa: PLR0913 - by name
    mirrors: MirrorTopicQuerySet,
    order: str,
    *,
    link: ClusterLink | None,
    by: Actor,
    start: int,
    size: int,
    now: datetime,
    at_risk: Mapping[int, int | None],
    current: Iterable[CurrentMirror],
    keys: set[int] | None,
) -> MirrorPage:
    """Return a page sorted by a value that only Redis has. It is read of all mirrors that are not in ``current``.

    ``keys`` are the primary keys of the mirrors, if they were read.
    """
    known = {mirror.pk: mirror for mirror in current}
    if keys is None:
        keys = set(mirrors.order_by().values_list("pk", flat=True)) if known else set()
    unread = mirrors.filter(pk__in=keys.difference(known)) if known else mirrors
    read_before = [mirror for mirror in known.values() if mirror.pk in keys]
    ranked = _ranked([*read_before, *progress.current(unread, now=now)], order, at_risk=at_risk, now=now)
    start = start if start < len(ranked) else _last_start(len(ranked), size)
    chosen = {mirror.pk: mirror.partitions for mirror in ranked[start : start + size]}
    with_errors = mirrors.filter(pk__in=list(chosen)).annotate(error_rows=_error_rows())
    read = {mirror.pk: mirror for mirror in _read(with_errors, 0, size, link=link, by=by)}
    rows = [
        summarize(read[pk], now=now, errors=_errors_of(read[pk]), partitions=partitions)
        for pk, partitions in chosen.items()
        if pk in read
    ]
    return MirrorPage(rows=rows, total=len(ranked), start=start)


def _ranked(
    mirrors: Sequence[CurrentMirror], order: str, *, at_risk: Mapping[int, int | None], now: datetime
) -> list[CurrentMirror]:
    """Return mirrors sorted by a value; unknown sorts as the smallest."""
    name, reverse = order.removeprefix("-"), order.startswith("-")
    values: dict[int, float | None] = {
        mirror.pk: at_risk.get(mirror.pk) if name == _RISK else _FIGURES[name](mirror.partitions, now) for mirror in mirrors
    }
    named = sorted(mirrors, key=attrgetter("name"))
    known = [mirror for mirror in named if values[mirror.pk] is not None]
    known.sort(key=lambda mirror: values[mirror.pk] or 0.0, reverse=reverse)
    unknown = [mirror for mirror in named if values[mirror.pk] is None]
    return known + unknown if reverse else unknown + known


def _largest_lag(rows: Sequence[MirrorPartition], now: datetime) -> float | None:
    return max((lag for row in rows if (lag := row.lag_at(now)) is not None), default=None)


def _oldest_age(rows: Sequence[MirrorPartition], now: datetime) -> float | None:
    since = min((row.caught_up_at for row in rows if row.caught_up_at is not None), default=None)
    return None if since is None else (now - since).total_seconds()


def _total_rate(rows: Sequence[MirrorPartition], _now: datetime) -> float | None:
    rates = [row.bytes_per_s for row in rows if row.bytes_per_s is not None]
    return sum(rates) if rates else None


_RISK = "risk"  # needs more than the partitions, so callers compute it
_FIGURES = {"lag": _largest_lag, "age": _oldest_age, "rate": _total_rate}


def _error_rows() -> Coalesce:
    rows = StateTransitionError.objects.filter(mirror=OuterRef("pk")).order_by().values("mirror")
    return Coalesce(Subquery(rows.annotate(n=Count("pk")).values("n"), output_field=IntegerField()), 0)


def _errors_of(mirror: MirrorTopic) -> int:
    return int(mirror.error_rows) + bool(mirror.error_code)  # type: ignore[attr-defined]
