"""One page of a long list of mirrors, and the figures of a whole link.

The database filters, sorts and cuts, and partitions are read for the rows of the page only. The newest lag, age and rate are in
Redis: a list in their order and the figures of a link read all partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    IntegerField,
    Max,
    OrderBy,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from console.access import visible_mirrors, with_links
from console.actors import Actor
from console.mirrors import progress
from console.mirrors.progress import CurrentMirror
from console.models import ClusterLink, MirrorPartition, MirrorTopic, StateTransitionError
from console.queries.figures import Figures, figures_of, lag_of
from console.queries.mirrors import MirrorSummary, summarize
from console.queries.unseen import UNSEEN
from linkengine.domain.states import COPYING, MirrorState

_FIRST = (
    MirrorState.FAILED,
    MirrorState.LINK_FAILED,
    MirrorState.SOURCE_UNAVAILABLE,
    MirrorState.PENDING_STOPPED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPage:
    """Some rows of a list and how many there are in all."""

    rows: Sequence[MirrorSummary]
    total: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFigures:
    """The mirrors of a link in one state; ``troubled`` of them have an error."""

    mirrors: int
    troubled: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFigures:
    """Totals over the visible mirrors of a link; lag and rates of those that are not stopped. Unknown is None, never 0."""

    states: Mapping[MirrorState, StateFigures]
    max_lag: int | None  # of the partitions whose lag is known
    unknown_lags: int  # partitions whose lag is not, and mirrors without partitions yet
    oldest_lag_ms: int | None
    bytes_per_s: float | None
    records_per_s: float | None
    heard_at: datetime | None  # newest report of a copy task
    expected_since: datetime | None  # since when reports are to be expected; None: nothing is copied


def mirror_page(  # noqa: PLR0913 - by name, with defaults
    *,
    by: Actor,
    link: ClusterLink | None = None,
    search: str = "",
    state: str = "",
    names: Sequence[str] | None = None,
    order: str = "",
    start: int = 0,
    size: int = 50,
    severities: Mapping[int, int] = MappingProxyType({}),
) -> MirrorPage:
    """Return some mirrors; ``order`` is one of name, state, health, lag, age, rate, since, with "-" for the reverse.

    Two queries. ``severities`` by primary key are needed for the order by health, 0 being the worst. Beyond the end the last
    page is returned. Without an order, mirrors that need attention come first.
    """
    now = timezone.now()
    found = _filtered(visible_mirrors(by), link=link, search=search, state=state, names=names)
    if order.removeprefix("-") in _FIGURES:
        return _page_by_figure(found, order, by=by, start=start, size=size, now=now)
    ordered = _ordered(found, order, severities).annotate(total=Window(Count("pk")), error_rows=_error_rows())
    chosen = with_links(ordered, by=by).prefetch_related("partitions")
    rows = list(chosen[start : start + size])
    if not rows and start:
        start = _last_start(found.count(), size)
        rows = list(chosen[start : start + size])
    progress.refresh(rows, now=now)
    return MirrorPage(
        rows=[summarize(one, now=now, errors=_errors_of(one)) for one in rows],
        total=rows[0].total if rows else 0,
        start=start,
    )


def link_figures(*, link: ClusterLink, by: Actor) -> LinkFigures:
    """Add up the mirrors of a link that the actor may see; two queries and one request to Redis."""
    mirrors, now = visible_mirrors(by).filter(link=link), timezone.now()
    states, since, unseen = _state_figures(mirrors)
    total, copying = Figures(), Figures()
    for mirror in progress.current(mirrors.exclude(state=MirrorState.STOPPED), now=now):
        figures_of(mirror.partitions, now=now, into=total)
        if mirror.state in COPYING:
            figures_of(mirror.partitions, now=now, into=copying)
    total.add_unseen(unseen)
    return LinkFigures(
        states=states,
        max_lag=total.max_lag,
        unknown_lags=total.hidden,
        oldest_lag_ms=total.oldest_ms(now),
        bytes_per_s=total.bytes_per_s,
        records_per_s=total.records_per_s,
        heard_at=copying.heard_at,
        expected_since=since,
    )


def _is_troubled() -> Q:
    """Choose the mirrors with an error, also where their state sounds well."""
    return Q(Exists(StateTransitionError.objects.filter(mirror=OuterRef("pk")))) | ~Q(error_code="")


def _state_figures(mirrors: QuerySet[MirrorTopic]) -> tuple[dict[MirrorState, StateFigures], datetime | None, int]:
    troubled = Case(When(_is_troubled(), then=1), default=0)
    rows = mirrors.annotate(troubled=troubled).order_by().values("state")
    counted = rows.annotate(
        n=Count("pk"),
        bad=Sum("troubled"),
        unseen=Count("pk", filter=UNSEEN),
        parts=Sum("num_partitions"),
        since=Max("state_since", filter=Q(num_partitions__gt=0)),
    )
    found = {MirrorState(row["state"]): row for row in counted}
    since = [row["since"] for state, row in found.items() if state in COPYING and row["since"]]
    figures = {
        state: StateFigures(mirrors=row["n"], troubled=row["bad"], partitions=row["parts"]) for state, row in found.items()
    }
    return figures, max(since, default=None), sum(row["unseen"] for row in found.values())


def _filtered(
    mirrors: QuerySet[MirrorTopic], *, link: ClusterLink | None, search: str, state: str, names: Sequence[str] | None
) -> QuerySet[MirrorTopic]:
    if link is not None:
        mirrors = mirrors.filter(link=link)
    if search:
        mirrors = mirrors.filter(Q(name__icontains=search) | Q(source_topic__icontains=search))
    if state:
        mirrors = mirrors.filter(state=state)
    return mirrors if names is None else mirrors.filter(name__in=names)


def _ordered(mirrors: QuerySet[MirrorTopic], order: str, severities: Mapping[int, int]) -> QuerySet[MirrorTopic]:
    name, reverse = order.removeprefix("-"), order.startswith("-")
    if name == "health":
        return _worst_first(mirrors, severities, reverse=reverse)
    if name in {"name", "state", "since"}:
        column = {"name": "name", "state": "state", "since": "state_since"}[name]
        return mirrors.order_by(OrderBy(F(column), descending=reverse), "name")
    states = (When(state=one, then=Value(rank)) for rank, one in enumerate(_FIRST))
    erring = When(_is_troubled(), then=Value(len(_FIRST)))
    return mirrors.order_by(Case(*states, erring, default=Value(len(_FIRST) + 1)), "name")


def _worst_first(mirrors: QuerySet[MirrorTopic], severities: Mapping[int, int], *, reverse: bool) -> QuerySet[MirrorTopic]:
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


def _page_by_figure(
    mirrors: QuerySet[MirrorTopic], order: str, *, by: Actor, start: int, size: int, now: datetime
) -> MirrorPage:
    """Return a page sorted by a value that only Redis has: those of all mirrors are read."""
    ranked = _ranked(progress.current(mirrors, now=now), order, now=now)
    start = start if start < len(ranked) else _last_start(len(ranked), size)
    chosen = {mirror.pk: mirror.partitions for mirror in ranked[start : start + size]}
    read = {mirror.pk: mirror for mirror in with_links(mirrors.filter(pk__in=chosen).annotate(error_rows=_error_rows()), by=by)}
    rows = [
        summarize(read[pk], now=now, errors=_errors_of(read[pk]), partitions=partitions)
        for pk, partitions in chosen.items()
        if pk in read
    ]
    return MirrorPage(rows=rows, total=len(ranked), start=start)


def _ranked(mirrors: Sequence[CurrentMirror], order: str, *, now: datetime) -> list[CurrentMirror]:
    """Return mirrors sorted by a value; unknown sorts as the smallest."""
    figure, reverse = _FIGURES[order.removeprefix("-")], order.startswith("-")
    values = {mirror.pk: figure(mirror.partitions, now) for mirror in mirrors}
    named = sorted(mirrors, key=attrgetter("name"))
    known = [mirror for mirror in named if values[mirror.pk] is not None]
    known.sort(key=lambda mirror: values[mirror.pk] or 0.0, reverse=reverse)
    unknown = [mirror for mirror in named if values[mirror.pk] is None]
    return known + unknown if reverse else unknown + known


def _largest_lag(rows: Sequence[MirrorPartition], now: datetime) -> float | None:
    return max((lag for row in rows if (lag := lag_of(row, now=now)) is not None), default=None)


def _oldest_age(rows: Sequence[MirrorPartition], now: datetime) -> float | None:
    since = min((row.caught_up_at for row in rows if row.caught_up_at is not None), default=None)
    return None if since is None else (now - since).total_seconds()


def _total_rate(rows: Sequence[MirrorPartition], _now: datetime) -> float | None:
    rates = [row.bytes_per_s for row in rows if row.bytes_per_s is not None]
    return sum(rates) if rates else None


_FIGURES = {"lag": _largest_lag, "age": _oldest_age, "rate": _total_rate}


def _error_rows() -> Coalesce:
    rows = StateTransitionError.objects.filter(mirror=OuterRef("pk")).order_by().values("mirror")
    return Coalesce(Subquery(rows.annotate(n=Count("pk")).values("n"), output_field=IntegerField()), 0)


def _errors_of(mirror: MirrorTopic) -> int:
    return int(mirror.error_rows) + bool(mirror.error_code)  # type: ignore[attr-defined]
