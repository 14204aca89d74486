"""Queries for mirror topics: a single mirror, lists and pages with figures, gaps, history and synced configs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    IntegerField,
    OrderBy,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
    prefetch_related_objects,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from console.access import links_with_sight, sight_of, visible_mirrors
from console.actors import Actor
from console.errors import NotFoundError
from console.links.health_queries import Observation
from console.mirrors import progress
from console.mirrors.figures import sum_if_known
from console.mirrors.progress import CurrentMirror
from console.models import (
    ClusterLink,
    ConfigRevert,
    GapRange,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    StateTransition,
    StateTransitionError,
)
from console.models.mirrors import UNSEEN, MirrorTopicQuerySet, is_fresh
from linkengine.domain.configs import ALWAYS_SYNCED, mirror_configs
from linkengine.domain.failover import estimated_bytes
from linkengine.domain.linktasks import TaskName
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import MirrorState

# --- mirrors, gaps and history ----------------------------------------------------------------------------------------


REPORTED_RECENTLY = timedelta(seconds=5)  # a copy worker reports twice a second, so an older report may be outdated
# Worst first: lists start with what needs a person.
_FIRST = (MirrorState.FAILED, MirrorState.LINK_FAILED, MirrorState.SOURCE_UNAVAILABLE, MirrorState.PENDING_STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSummary:
    """A mirror with its figures. Unknown is None, never 0."""

    mirror: MirrorTopic
    partitions: Sequence[MirrorPartition]
    max_lag: int | None
    lag_ms: int | None
    bytes_per_s: float | None
    records_per_s: float | None
    errors: int  # of the mirror itself and of its transition

    @property
    def total_lag(self) -> int | None:
        """Offsets that the mirror still has to copy, over all partitions; None while any of them is unknown."""
        return sum_if_known([partition.lag for partition in self.partitions])

    @property
    def missing(self) -> int | None:
        """Offsets that a failover now would not copy, including open transactions; None while any partition is unknown."""
        return sum_if_known([partition.missing for partition in self.partitions])

    @property
    def lag_bytes(self) -> int | None:
        """Bytes that the mirror still has to copy, estimated from the mean size of its records so far."""
        return estimated_bytes(
            lag=self.total_lag,
            bytes_copied=sum(partition.bytes_copied for partition in self.partitions),
            records_copied=sum(partition.records_copied for partition in self.partitions),
        )


def get_mirror(*, cluster_id: str, link_name: str, mirror_name: str, by: Actor) -> MirrorTopic:
    """Return a mirror with link, clusters, partitions and transition errors; raise NotFoundError if it is not visible."""
    mirror = get_mirror_only(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    load_parts(mirror)
    return mirror


def load_parts(mirror: MirrorTopic) -> None:
    """Load partitions with their current progress, transition errors and the link's configs. Three queries."""
    prefetch_related_objects([mirror], "link__configs", "partitions", _errors())
    progress.refresh([mirror], now=timezone.now())


def get_mirror_only(*, cluster_id: str, link_name: str, mirror_name: str, by: Actor) -> MirrorTopic:
    """Return a mirror with link and clusters, without partitions, errors and configs. One query.

    ``config_errors`` are the errors of the link's last config sync, None if there were none.
    """
    failing = FilteredRelation(
        "link__tasks", condition=Q(link__tasks__name=TaskName.TOPIC_CONFIGS, link__tasks__error_count__gt=0)
    )
    found = visible_mirrors(by).select_related("link__destination__environment__organization", "link__source", "verify_watch")
    found = found.filter(link__destination__cluster_id=cluster_id, link__name=link_name, name=mirror_name)
    found = found.annotate(sees_source=sight_of("link__source", by), failing=failing, config_errors=F("failing__errors"))
    mirror = _first(found, link_name=link_name, mirror_name=mirror_name)
    mirror.link.sees_source = mirror.sees_source  # type: ignore[attr-defined]  # see ``ClusterLink.known_source``
    return mirror


def version_now(*, cluster_id: str, link_name: str, mirror_name: str, by: Actor) -> str | None:
    """Return the ``version_of`` the link of a mirror without loading them; None if the mirror is not visible. One query."""
    found = visible_mirrors(by).filter(link__destination__cluster_id=cluster_id, link__name=link_name, name=mirror_name)
    row = found.order_by().values_list("link__sequence", "link__link_uuid").first()
    return None if row is None else f"{row[0]} {progress.news([row[1].hex])}"


def _first(found: QuerySet[MirrorTopic], *, link_name: str, mirror_name: str) -> MirrorTopic:
    mirror = found.first()
    if mirror is None:
        message = gettext_lazy(
            "Topic '%(name)s' is not a mirror topic of cluster link '%(link)s'.",
            name=mirror_name,
            link=link_name,
        )
        raise NotFoundError(message, code="UNKNOWN_MIRROR")
    return mirror


def find_by_topic(*, cluster_id: str, topic: str, by: Actor) -> MirrorTopic | None:
    """Return the mirror of a topic of a cluster, the newest if there are several; None if the topic is not a mirror topic."""
    found = _complete(visible_mirrors(by), by=by).filter(link__destination__cluster_id=cluster_id, name=topic)
    mirror = found.order_by("-created_at").first()
    progress.refresh([] if mirror is None else [mirror], now=timezone.now())
    return mirror


def list_mirrors(*, link: ClusterLink | None = None, cluster_id: str | None = None, by: Actor) -> list[MirrorSummary]:
    """Return the mirrors of a link, of a cluster or of all links, first those that need a person, then by name."""
    mirrors = _complete(visible_mirrors(by), by=by) if link is None else _of_link(link, by=by)
    if cluster_id:
        mirrors = mirrors.filter(link__destination__cluster_id=cluster_id)
    now, found = timezone.now(), list(mirrors)
    if link is not None and found:
        prefetch_related_objects([link], "configs")
        for mirror in found:
            mirror.link = link
    progress.refresh(found, now=now)
    ranks = {state: rank for rank, state in enumerate(_FIRST)}
    found.sort(key=lambda mirror: (ranks.get(MirrorState(mirror.state), len(_FIRST)), mirror.name))
    return [summarize(mirror, now=now) for mirror in found]


def summarize(
    mirror: MirrorTopic, *, now: datetime, errors: int | None = None, partitions: Sequence[MirrorPartition] | None = None
) -> MirrorSummary:
    """Return the figures of a mirror. Prefetched partitions and errors are used unless ``partitions`` or ``errors`` is set."""
    partitions = list(mirror.partitions.all()) if partitions is None else partitions
    lags = [partition.lag for partition in partitions if partition.lag is not None]
    max_lag = max(lags) if lags and len(lags) == len(partitions) else None
    measured = [row for row in partitions if row.observed_at is None or row.observed_at >= now - UNSEEN]
    return MirrorSummary(
        mirror=mirror,
        partitions=partitions,
        max_lag=max_lag,
        lag_ms=_lag_ms(mirror, partitions, now),
        bytes_per_s=_sum([row.bytes_per_s for row in measured]),
        records_per_s=_sum([row.records_per_s for row in measured]),
        errors=len(mirror.transition_errors.all()) + bool(mirror.error_code) if errors is None else errors,
    )


def list_gaps(*, mirror: MirrorTopic, limit: int) -> list[GapRange]:
    """Return the ranges that hold fillers instead of copied records, by partition and offset."""
    return list(mirror.gaps.all()[:limit])


def lags_of(mirrors: Iterable[MirrorTopic]) -> dict[int, Sequence[MirrorPartition]]:
    """Return the partitions of mirrors with their current progress, by primary key of the mirror; one query."""
    chosen = MirrorTopic.objects.filter(pk__in=[mirror.pk for mirror in mirrors])
    return {mirror.pk: mirror.partitions for mirror in progress.current(chosen, now=timezone.now())}


def list_transitions(*, mirror: MirrorTopic, limit: int) -> list[StateTransition]:
    """Return the state transitions of a mirror, newest first."""
    return list(mirror.transitions.all()[:limit])


def _errors() -> Prefetch[str]:
    return Prefetch("transition_errors", queryset=StateTransitionError.objects.order_by("since", "pk"))


def _of_link(link: ClusterLink, *, by: Actor) -> MirrorTopicQuerySet:
    """Return the mirrors of a link that was read, with partitions and errors."""
    return visible_mirrors(by).filter(link=link).prefetch_related("partitions", _errors())


def _complete(mirrors: MirrorTopicQuerySet, *, by: Actor) -> MirrorTopicQuerySet:
    return mirrors.with_links(links_with_sight(by)).prefetch_related("partitions", _errors())


def _lag_ms(mirror: MirrorTopic, partitions: Sequence[MirrorPartition], now: datetime) -> int | None:
    if mirror.state == MirrorState.STOPPED or not partitions:
        return None
    ages = [_age_ms(partition, now) for partition in partitions]
    known = [age for age in ages if age is not None]
    return max(known) if len(known) == len(ages) else None


def _age_ms(partition: MirrorPartition, now: datetime) -> int | None:
    if partition.missing == 0 and is_fresh(partition.observed_at, now=now, within=REPORTED_RECENTLY):
        return 0
    return partition.behind_ms(now)


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


# --- a page of a long list, and the figures of a link -----------------------------------------------------------------
#
# The database filters, sorts and cuts, and partitions are read for the rows of the page only. The newest lag, age and rate are
# in Redis: a list in their order and the figures of a link read all partitions.


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
        unknown_lags=seen.total.unknown_lags,
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
    """Return the largest lag that is known. Of a row that is less behind than another the age is not needed."""
    largest: int | None = None
    for row in rows:
        source, mirror = row.source_end, row.mirror_end
        if source is not None and mirror is not None and (largest is None or source - mirror > largest):
            lag = row.lag_at(now)
            largest = largest if lag is None else lag
    return largest


def _oldest_age(rows: Sequence[MirrorPartition], now: datetime) -> float | None:
    since = min((row.caught_up_at for row in rows if row.caught_up_at is not None), default=None)
    return None if since is None else (now - since).total_seconds()


def _total_rate(rows: Sequence[MirrorPartition], _now: datetime) -> float | None:
    return _sum([row.bytes_per_s for row in rows])


_RISK = "risk"  # needs more than the partitions, so callers compute it
_FIGURES = {"lag": _largest_lag, "age": _oldest_age, "rate": _total_rate}


def _error_rows() -> Coalesce:
    rows = StateTransitionError.objects.filter(mirror=OuterRef("pk")).order_by().values("mirror")
    return Coalesce(Subquery(rows.annotate(n=Count("pk")).values("n"), output_field=IntegerField()), 0)


def _errors_of(mirror: MirrorTopic) -> int:
    return int(mirror.error_rows) + bool(mirror.error_code)  # type: ignore[attr-defined]


# --- synced configs ---------------------------------------------------------------------------------------------------


INCLUDE = "topic.config.sync.include"
REVERTS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedConfig:
    """A config that is synced from the source."""

    name: str
    source_value: str  # as last read
    mirror_value: str  # the current value on the mirror topic
    always: bool  # False: only if the link's include list contains it


def followed_configs(mirror: MirrorTopic) -> list[FollowedConfig]:
    """Return the synced configs by name; for a stopped mirror, those that it got from the source."""
    text = mirror.link.config(INCLUDE)
    include = tuple(name.strip() for name in text.split(",") if name.strip()) if text else None
    known: dict[str, str] = mirror.source_configs
    applied = known if mirror.state == MirrorState.STOPPED else mirror_configs(known, include=include)
    return [
        FollowedConfig(name=name, source_value=value, mirror_value=applied.get(name, value), always=name in ALWAYS_SYNCED)
        for name, value in sorted(known.items())
    ]


def list_reverts(mirror: MirrorTopic) -> Sequence[ConfigRevert]:
    """Return the reverted local changes, newest first."""
    return list(mirror.config_reverts.all()[:REVERTS_SHOWN])
