"""One page of a long list of mirrors, and the figures of a whole link, at a cost that does not grow with what is not shown.

Filtering, sorting and cutting happen in the database; partitions are read for the rows of the page only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    IntegerField,
    Max,
    Min,
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

from console.access import visible_mirrors
from console.actors import Actor
from console.models import ClusterLink, MirrorPartition, MirrorTopic, StateTransitionError
from console.models.mirrors import AHEAD, incomplete, measured_rates, unknown_ages, unknown_lags
from console.queries.mirrors import MirrorSummary, summarize
from console.queries.unseen import UNSEEN, with_unseen
from console.sharing import with_links
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

    Four queries. ``severities`` by primary key are needed for the order by health, 0 being the worst. Beyond the end the last
    page is returned. Without an order, mirrors that need attention come first.
    """
    found = _filtered(visible_mirrors(by), link=link, search=search, state=state, names=names)
    ordered = _ordered(found, order, severities).annotate(total=Window(Count("pk")), error_rows=_error_rows())
    chosen = with_links(ordered, by=by).prefetch_related("partitions")
    rows = list(chosen[start : start + size])
    if not rows and start:
        total = found.count()
        start = max(0, (total - 1) // size * size)
        rows = list(chosen[start : start + size])
    now = timezone.now()
    return MirrorPage(
        rows=[summarize(one, now=now, errors=_errors_of(one)) for one in rows],
        total=rows[0].total if rows else 0,
        start=start,
    )


def link_figures(*, link: ClusterLink, by: Actor) -> LinkFigures:
    """Add up the mirrors of a link that the actor may see; two queries, however many there are."""
    mirrors = visible_mirrors(by).filter(link=link)
    states, since, unseen = _state_figures(mirrors)
    now = timezone.now()
    hidden, lacking = unknown_lags(now), incomplete(now)
    total = (
        MirrorPartition.objects.filter(mirror__in=mirrors)
        .exclude(mirror__state=MirrorState.STOPPED)
        .aggregate(
            max_lag=Max(F("source_end") - F("mirror_end"), filter=~hidden),
            hidden=Count("pk", filter=hidden),
            lacking=Count("pk", filter=lacking),
            never=Count("pk", filter=lacking & unknown_ages(now)),
            behind_since=Min("caught_up_at", filter=lacking),
            bytes=Sum("bytes_per_s", filter=measured_rates(now)),
            records=Sum("records_per_s", filter=measured_rates(now)),
            heard_at=Max("observed_at", filter=Q(mirror__state__in=COPYING, observed_at__lte=now + AHEAD)),
        )
    )
    total = with_unseen(total, unseen)
    max_lag = None if total["max_lag"] is None else max(0, total["max_lag"])
    return LinkFigures(
        states=states,
        max_lag=max_lag,
        unknown_lags=total["hidden"],
        oldest_lag_ms=_oldest_ms(total, max_lag=max_lag, now=now),
        bytes_per_s=total["bytes"],
        records_per_s=total["records"],
        heard_at=total["heard_at"],
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
    figures = {
        "lag": Max(F("source_end") - F("mirror_end"), filter=~unknown_lags(timezone.now())),
        "age": Min("caught_up_at"),  # the longer ago, the older the lag
        "rate": Sum("bytes_per_s"),
    }
    if name in figures:
        reverse = reverse != (name == "age")
        last = {"nulls_last": True} if order.startswith("-") else {"nulls_first": True}
        figure = F("figure").desc(**last) if reverse else F("figure").asc(**last)
        return mirrors.annotate(figure=_figure(figures[name])).order_by(figure, "name")
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


def _figure(aggregate: Any) -> Subquery:
    rows = MirrorPartition.objects.filter(mirror=OuterRef("pk")).order_by().values("mirror")
    return Subquery(rows.annotate(figure=aggregate).values("figure"))


def _error_rows() -> Coalesce:
    rows = StateTransitionError.objects.filter(mirror=OuterRef("pk")).order_by().values("mirror")
    return Coalesce(Subquery(rows.annotate(n=Count("pk")).values("n"), output_field=IntegerField()), 0)


def _errors_of(mirror: MirrorTopic) -> int:
    return int(mirror.error_rows) + bool(mirror.error_code)  # type: ignore[attr-defined]


def _oldest_ms(total: Mapping[str, Any], *, max_lag: int | None, now: datetime) -> int | None:
    if not total["lacking"]:
        return max_lag
    return None if total["never"] else _age_ms(total["behind_since"], now)


def _age_ms(since: datetime | None, now: datetime) -> int | None:
    return None if since is None else max(0, int((now - since).total_seconds() * 1000))
