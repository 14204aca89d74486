"""Queries for mirror topics: a single mirror, lists with figures, gaps, history and synced configs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, FilteredRelation, Prefetch, Q, QuerySet, prefetch_related_objects
from django.utils import timezone

from console.access import links_with_sight, sight_of, visible_mirrors
from console.actors import Actor
from console.errors import NotFoundError
from console.mirrors import progress
from console.mirrors.figures import sum_if_known
from console.models import (
    ClusterLink,
    ConfigRevert,
    GapRange,
    MirrorPartition,
    MirrorTopic,
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


FRESH = timedelta(seconds=5)  # a copy worker reports twice a second; an older report does not show the present state
# Worst first: the list starts with what needs a person.
_URGENCY = {
    MirrorState.FAILED: 0,
    MirrorState.LINK_FAILED: 1,
    MirrorState.SOURCE_UNAVAILABLE: 2,
    MirrorState.PENDING_STOPPED: 3,
}


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


def list_mirrors(
    *,
    link: ClusterLink | None = None,
    cluster_id: str | None = None,
    by: Actor,
    status: str = "",
    search: str = "",
    order: str = "",
) -> list[MirrorSummary]:
    """Return mirrors; ``status`` is that of REST, ``order`` name, state, lag, age, rate or since, with "-" for the reverse."""
    mirrors = _complete(visible_mirrors(by), by=by) if link is None else _of_link(link, by=by)
    if cluster_id:
        mirrors = mirrors.filter(link__destination__cluster_id=cluster_id)
    if search:
        mirrors = mirrors.filter(name__icontains=search)
    now, found = timezone.now(), list(mirrors)
    if link is not None and found:
        prefetch_related_objects([link], "configs")
        for mirror in found:
            mirror.link = link
    progress.refresh(found, now=now)
    rows = [summarize(mirror, now=now) for mirror in found if not status or rest_status(mirror) == status]
    return _ordered(rows, order)


def shown_state(mirror: MirrorTopic) -> MirrorState:
    """Return the state as pages and REST show it: a mirror that is being set up counts as ACTIVE (pages add a note)."""
    state = MirrorState(mirror.state)
    return MirrorState.ACTIVE if state is MirrorState.PENDING_SETUP else state


def rest_status(mirror: MirrorTopic) -> str:
    """Return ``mirror_status`` of REST, which shortens PENDING_RESTORE_MIRROR."""
    state = shown_state(mirror)
    return "PENDING_RESTORE" if state is MirrorState.PENDING_RESTORE_MIRROR else state.value


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


def list_gaps(*, mirror: MirrorTopic, limit: int = 1000) -> list[GapRange]:
    """Return the ranges that hold fillers instead of copied records, by partition and offset."""
    return list(mirror.gaps.all()[:limit])


def lags_of(mirrors: Iterable[MirrorTopic]) -> dict[int, Sequence[MirrorPartition]]:
    """Return the partitions of mirrors with their current progress, by primary key of the mirror; one query."""
    chosen = MirrorTopic.objects.filter(pk__in=[mirror.pk for mirror in mirrors])
    return {mirror.pk: mirror.partitions for mirror in progress.current(chosen, now=timezone.now())}


def list_transitions(*, mirror: MirrorTopic, limit: int = 100) -> list[StateTransition]:
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
    if partition.missing == 0 and is_fresh(partition.observed_at, now=now, within=FRESH):
        return 0
    return partition.behind_ms(now)


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _ordered(rows: list[MirrorSummary], order: str) -> list[MirrorSummary]:
    keys = {
        "name": lambda row: row.mirror.name,
        "state": lambda row: row.mirror.state,
        "lag": lambda row: -1 if row.max_lag is None else row.max_lag,
        "age": lambda row: -1 if row.lag_ms is None else row.lag_ms,
        "rate": lambda row: row.bytes_per_s or 0.0,
        "since": lambda row: row.mirror.state_since,
    }
    key = keys.get(order.lstrip("-"))
    if key is not None:
        return sorted(rows, key=key, reverse=order.startswith("-"))
    return sorted(rows, key=lambda row: (_URGENCY.get(MirrorState(row.mirror.state), 9), row.mirror.name))


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
