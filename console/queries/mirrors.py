"""Mirror topics: one, many with their figures, their gaps and their history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Prefetch, QuerySet
from django.utils import timezone

from console.access import visible_mirrors, with_links
from console.actors import Actor
from console.errors import NotFoundError
from console.models import ClusterLink, GapRange, MirrorPartition, MirrorTopic, StateTransition, StateTransitionError
from console.models.mirrors import UNSEEN, is_fresh
from linkengine.domain.states import MirrorState
from linkengine.domain.stopreports import estimated_bytes

FRESH = timedelta(seconds=5)  # the copier reports twice a second; an older report says nothing about now
# Worst first: who looks at the list wants to know what to mend.
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
        """Offsets the mirror still has to copy, over all partitions; None while one is unknown."""
        return sum_if_known([one.lag for one in self.partitions])

    @property
    def missing(self) -> int | None:
        """Offsets that a failover now would leave behind, also those behind open transactions; None while one is unknown."""
        return sum_if_known([one.missing for one in self.partitions])

    @property
    def lag_bytes(self) -> int | None:
        """Estimate the bytes that the mirror still has to copy from the mean size of its records so far."""
        return estimated_bytes(
            lag=self.total_lag,
            bytes_copied=sum(one.bytes_copied for one in self.partitions),
            records_copied=sum(one.records_copied for one in self.partitions),
        )


def sum_if_known(counts: Sequence[int | None]) -> int | None:
    """Answer the sum; None where there is nothing to sum up, or one of the counts is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def get_mirror(*, cluster_id: str, link_name: str, mirror_name: str, by: Actor) -> MirrorTopic:
    """Answer a mirror with link, clusters, partitions and transition errors."""
    found = _complete(visible_mirrors(by), by=by).filter(
        link__destination__cluster_id=cluster_id, link__name=link_name, name=mirror_name
    )
    return _first(found, link_name=link_name, mirror_name=mirror_name)


def get_mirror_only(*, cluster_id: str, link_name: str, mirror_name: str, by: Actor) -> MirrorTopic:
    """Return a mirror with its link and destination, without partitions, errors and configs. One query."""
    found = visible_mirrors(by).select_related("link__destination__environment__organization")
    found = found.filter(link__destination__cluster_id=cluster_id, link__name=link_name, name=mirror_name)
    return _first(found, link_name=link_name, mirror_name=mirror_name)


def _first(found: QuerySet[MirrorTopic], *, link_name: str, mirror_name: str) -> MirrorTopic:
    mirror = found.first()
    if mirror is None:
        message = f"Topic '{mirror_name}' is not a mirror topic of cluster link '{link_name}'."
        raise NotFoundError(message, code="UNKNOWN_MIRROR")
    return mirror


def find_by_topic(*, cluster_id: str, topic: str, by: Actor) -> MirrorTopic | None:
    """Answer the mirror behind a topic of a cluster, None if it is an ordinary one; the newest if there were several."""
    found = _complete(visible_mirrors(by), by=by).filter(link__destination__cluster_id=cluster_id, name=topic)
    return found.order_by("-created_at").first()


def list_mirrors(
    *,
    link: ClusterLink | None = None,
    cluster_id: str | None = None,
    by: Actor,
    status: str = "",
    search: str = "",
    order: str = "",
) -> list[MirrorSummary]:
    """List mirrors; ``status`` is a state as shown, ``order`` one of name, state, lag, rate, with "-" for the reverse."""
    mirrors = _complete(visible_mirrors(by), by=by)
    if link is not None:
        mirrors = mirrors.filter(link=link)
    if cluster_id:
        mirrors = mirrors.filter(link__destination__cluster_id=cluster_id)
    if search:
        mirrors = mirrors.filter(name__icontains=search)
    now = timezone.now()
    rows = [summarize(one, now=now) for one in mirrors if not status or rest_status(one) == status]
    return _ordered(rows, order)


def shown_state(mirror: MirrorTopic) -> MirrorState:
    """Answer the state as people and REST know it: a mirror that is being set up counts as ACTIVE (pages add a note)."""
    state = MirrorState(mirror.state)
    return MirrorState.ACTIVE if state is MirrorState.PENDING_SETUP else state


def rest_status(mirror: MirrorTopic) -> str:
    """Answer ``mirror_status`` of REST, which has a shorter word for one state."""
    state = shown_state(mirror)
    return "PENDING_RESTORE" if state is MirrorState.PENDING_RESTORE_MIRROR else state.value


def summarize(mirror: MirrorTopic, *, now: datetime, errors: int | None = None) -> MirrorSummary:
    """Work out the figures of a mirror whose partitions were read with it, and so its errors unless ``errors`` counts them."""
    partitions = list(mirror.partitions.all())
    lags = [one.lag for one in partitions if one.lag is not None]
    max_lag = max(lags) if lags and len(lags) == len(partitions) else None
    measured = [one for one in partitions if one.observed_at is None or one.observed_at >= now - UNSEEN]
    return MirrorSummary(
        mirror=mirror,
        partitions=partitions,
        max_lag=max_lag,
        lag_ms=_lag_ms(mirror, partitions, now),
        bytes_per_s=_sum([one.bytes_per_s for one in measured]),
        records_per_s=_sum([one.records_per_s for one in measured]),
        errors=len(mirror.transition_errors.all()) + bool(mirror.error_code) if errors is None else errors,
    )


def list_gaps(*, mirror: MirrorTopic, limit: int = 1000) -> list[GapRange]:
    """List what was filled instead of copied, by partition and offset."""
    return list(mirror.gaps.all()[:limit])


def lags_of(mirrors: Iterable[MirrorTopic]) -> dict[int, list[MirrorPartition]]:
    """Read, by primary key of the mirror, what its lag is told from and nothing else; one query."""
    needed = ("mirror_id", "partition", "source_end", "mirror_end", "last_source_seen_at", "last_source_fetch_offset")
    found: dict[int, list[MirrorPartition]] = {one.pk: [] for one in mirrors}
    for row in MirrorPartition.objects.filter(mirror__in=found).only(*needed):
        found[row.mirror_id].append(row)
    return found


def list_transitions(*, mirror: MirrorTopic, limit: int = 100) -> list[StateTransition]:
    """List the newest steps of a mirror's life first."""
    return list(mirror.transitions.all()[:limit])


def _complete(mirrors: QuerySet[MirrorTopic], *, by: Actor) -> QuerySet[MirrorTopic]:
    errors = Prefetch("transition_errors", queryset=StateTransitionError.objects.order_by("since", "pk"))
    return with_links(mirrors, by=by).prefetch_related("partitions", errors)


def _lag_ms(mirror: MirrorTopic, partitions: Sequence[MirrorPartition], now: datetime) -> int | None:
    if mirror.state == MirrorState.STOPPED or not partitions:
        return None
    ages = [_age_ms(one, now) for one in partitions]
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
