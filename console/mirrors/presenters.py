"""View models of a mirror topic: list row, tiles, partitions, gaps, state history, lineage, open transactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.utils.translation import gettext, ngettext

from console.links.presenters import Tile, source_servers
from console.models.mirrors import UNSEEN, is_fresh
from console.web import numbers
from console.web.badges import GAP_BADGES, PHASE_LABELS, Badge, mirror_badge
from console.web.errors import ErrorNote, error_note
from console.web.health_presenters import HealthView, health_view
from console.web.numbers import Moment, moment
from linkengine.domain.health import HealthStatus
from linkengine.domain.linkrules import EARLIEST, LATEST, start_time_ms
from linkengine.domain.states import GapReason, MirrorState

if TYPE_CHECKING:
    from console.history.incidents import Change
    from console.mirrors.lineage import Origin
    from console.mirrors.queries import MirrorSummary
    from console.models import GapRange, MirrorPartition, MirrorTopic, StateTransition


# --- list row, partitions, gaps and state history ---------------------------------------------------------------------


SHOWN_RANGES = 20  # gap ranges listed per reason; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRow:
    """A row of a list of mirror topics."""

    key: str
    name: str
    source_topic: str
    badge: Badge  # of the state
    health: HealthView | None  # None: not derived for this list
    lag: str
    lag_time: str
    partitions: str
    rate: str
    since: Moment | None
    errors: int
    note: ErrorNote | None
    writable: bool
    deleting: bool


def mirror_row(summary: MirrorSummary, *, now: datetime, health: HealthStatus | None = None) -> MirrorRow:
    """Create the row of a mirror."""
    mirror = summary.mirror
    return MirrorRow(
        key=str(mirror.pk),
        name=mirror.name,
        source_topic=mirror.source_topic,
        badge=mirror_badge(mirror.state, mirror.stop_reason),
        health=health_view(health) if health else None,
        lag=numbers.count(summary.max_lag),
        lag_time=numbers.lag_time(summary.lag_ms),
        partitions=numbers.count(mirror.num_partitions or None),
        rate=numbers.byte_rate(summary.bytes_per_s),
        since=moment(mirror.state_since, now=now),
        errors=summary.errors,
        note=mirror_note(mirror, troubled=summary.errors > 0, now=now),
        writable=mirror.state == MirrorState.STOPPED,
        deleting=mirror.deletion_requested_at is not None,
    )


def mirror_note(mirror: MirrorTopic, *, troubled: bool, now: datetime) -> ErrorNote | None:
    """Return the note on the failure of a mirror or of its setup, None if there is none; ``troubled``: it has errors."""
    trouble = mirror.setup_trouble if troubled and not mirror.error_code else None
    if trouble is not None:
        return error_note(trouble.code, trouble.message, now=now, since=trouble.since)
    return error_note(mirror.error_code, mirror.error_message, now=now, since=mirror.error_since)


def mirror_tiles(summary: MirrorSummary) -> list[Tile]:
    """Return the tiles of a mirror."""
    lags = [row.lag for row in summary.partitions]
    behind = sum(1 for lag in lags if lag)
    total = sum(lag for lag in lags if lag is not None) if lags and None not in lags else None
    return [
        Tile(
            label=gettext("Max lag"),
            value=numbers.count(summary.max_lag),
            hint=ngettext("messages · %(count)s partition behind", "messages · %(count)s partitions behind", behind)
            % {"count": numbers.count(behind)}
            if behind
            else gettext("messages, max of all partitions"),
        ),
        Tile(
            label=gettext("Total lag"),
            value=numbers.count(total),
            hint=_lag_hint(summary.lag_bytes),
        ),
        Tile(
            label=gettext("Time lag"),
            value=numbers.lag_time(summary.lag_ms),
            hint=gettext("unknown") if summary.lag_ms is None else gettext("data loss window if you fail over now"),
        ),
        Tile(
            label=gettext("Throughput"),
            value=numbers.byte_rate(summary.bytes_per_s),
            hint=gettext("not measured") if summary.records_per_s is None else numbers.record_rate(summary.records_per_s),
        ),
    ]


def _lag_hint(lag_bytes: int | None) -> str:
    if lag_bytes is None:
        return gettext("messages, bytes unknown")
    text = gettext("messages, about %(size)s") if lag_bytes else gettext("messages, %(size)s")
    return text % {"size": numbers.size(lag_bytes)}


def copied_words(summary: MirrorSummary) -> str:
    """Return what was copied: records and bytes."""
    total = sum(row.bytes_copied for row in summary.partitions)
    records = sum(row.records_copied for row in summary.partitions)
    return gettext("%(count)s records, %(size)s") % {"count": numbers.count(records), "size": numbers.size(total)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """A row of the partitions table of a mirror.

    ``share`` is the percentage of the source's offset range that is copied; None if the range is unknown now.
    """

    partition: int
    source_start: str
    source_end: str
    mirror_start: str
    mirror_end: str
    lag: str
    behind: bool
    share: int | None
    last_fetch: str
    rate: str
    phase: str
    observed: Moment | None
    note: ErrorNote | None


def partition_row(row: MirrorPartition, *, now: datetime) -> PartitionRow:
    """Create the row of a partition. Unknown offsets are dashes."""
    end = None if row.lag is None else row.source_end
    start = row.mirror_start
    target = None if end is None or start is None else end + (row.held_back or 0) - start
    copied = None if row.mirror_end is None or start is None else row.mirror_end - start
    fresh = is_fresh(row.observed_at, now=now, within=UNSEEN)  # an old report says nothing about the current rate and phase
    return PartitionRow(
        partition=row.partition,
        source_start=numbers.count(row.source_start),
        source_end=numbers.count(row.source_end),
        mirror_start=numbers.count(row.mirror_start),
        mirror_end=numbers.count(row.mirror_end),
        lag=numbers.count(row.lag),
        behind=bool(row.lag),
        share=numbers.percent_of(copied, target),
        last_fetch=numbers.count(row.last_source_fetch_offset),
        rate=numbers.byte_rate(row.bytes_per_s if fresh else None),
        phase=gettext(PHASE_LABELS.get(row.phase, row.phase)) if fresh else numbers.UNKNOWN,
        observed=moment(row.observed_at, now=now),
        note=error_note(row.error_code, row.error_message, now=now),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GapGroup:
    """The filled offsets of one reason, with the first ranges."""

    badge: Badge
    offsets: str
    counted: str  # with the noun: "17 offsets"
    ranges: Sequence[str]
    more: int  # number of ranges not listed
    lost: bool


def gap_groups(gaps: Iterable[GapRange]) -> list[GapGroup]:
    """Group the gap ledger by reason, lost records first."""
    by_reason: dict[GapReason, list[GapRange]] = defaultdict(list)
    for gap in gaps:
        by_reason[GapReason(gap.reason)].append(gap)
    order = sorted(by_reason, key=lambda reason: (reason is not GapReason.LOST, list(GapReason).index(reason)))
    return [_gap_group(reason, by_reason[reason]) for reason in order]


def _gap_group(reason: GapReason, gaps: Sequence[GapRange]) -> GapGroup:
    filled = sum(gap.filled for gap in gaps)
    return GapGroup(
        badge=GAP_BADGES[reason],
        offsets=numbers.count(filled),
        counted=_offsets(filled),
        ranges=[_range_text(gap) for gap in gaps[:SHOWN_RANGES]],
        more=max(0, len(gaps) - SHOWN_RANGES),
        lost=reason is GapReason.LOST,
    )


def _offsets(number: int) -> str:
    return ngettext("%(count)s offset", "%(count)s offsets", number) % {"count": numbers.count(number)}


def _range_text(gap: GapRange) -> str:
    last = gap.end - 1
    values = {"partition": gap.partition, "first": f"{gap.start:,}", "last": f"{last:,}", "filled": f"{gap.filled:,}"}
    if gap.filled != gap.end - gap.start:
        text = gettext("partition %(partition)s: %(first)s to %(last)s (%(filled)s of them)")
    elif last != gap.start:
        text = gettext("partition %(partition)s: %(first)s to %(last)s")
    else:
        text = gettext("partition %(partition)s: %(first)s")
    return text % values + _times(gap)


def _times(gap: GapRange) -> str:
    """Return when lost records were written, by the timestamps of the adjacent records; "" if unknown."""
    after, before = (None if ms is None else numbers.record_time(ms) for ms in (gap.before_ms, gap.after_ms))
    if after and before:
        return gettext(", written after %(after)s and before %(before)s") % {"after": after, "before": before}
    if after:
        return gettext(", written after %(after)s") % {"after": after}
    return gettext(", written before %(before)s") % {"before": before} if before else ""


def start_label(spec: str) -> str:
    """Return the start offset of a mirror in words."""
    if spec == EARLIEST:
        return gettext("Earliest record of the source")
    if spec == LATEST:
        return gettext("Latest: end of the source at creation")
    return gettext("Records since %(time)s") % {"time": numbers.record_time(start_time_ms(spec) or 0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A state transition in the history of a mirror."""

    badge: Badge
    previous: str  # code; "" for the creation. Whether a stop before was a promotion or a failover is not stored with it.
    event: str
    by: str
    at: Moment | None
    detail: str


def steps(transitions: Iterable[StateTransition | Change], *, now: datetime) -> list[Step]:
    """Return the rows of state transitions, in their order. A stop has the label of the event that started it."""
    return [
        Step(
            badge=mirror_badge(transition.to_state, transition.event),
            previous=transition.from_state,
            event=transition.event,
            by=transition.by,
            at=moment(transition.at, now=now),
            detail=transition.detail,
        )
        for transition in transitions
    ]


# --- open transactions of the source ----------------------------------------------------------------------------------
#
# Records behind them cannot be copied, although the lag is 0.


SHOWN_AFTER = timedelta(seconds=10)  # most transactions are shorter; a note that appears and disappears is of no use
NAMED = 3  # partitions that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A note on a mirror whose copy waits for an open transaction."""

    sentence: str
    places: str
    command: str  # shell command that finds the transaction


def held_back(mirror: MirrorTopic, partitions: Sequence[MirrorPartition], *, now: datetime) -> HeldBack | None:
    """Return the note; None if nothing is held back, if it is unknown, or for ``SHOWN_AFTER`` at first."""
    waiting = [row for row in partitions if row.held_back and row.lag == 0 and _is_long(row, now)]
    if not waiting:
        return None
    offsets = sum(row.held_back or 0 for row in waiting)
    place = gettext("partition %(partition)s from offset %(offset)s")
    shown = [{"partition": row.partition, "offset": numbers.count(row.source_end)} for row in waiting[:NAMED]]
    named = ", ".join(place % values for values in shown)
    more = len(waiting) - NAMED
    first = waiting[0].partition
    return HeldBack(
        sentence=ngettext(
            "%(count)s offset held back by an open transaction.", "%(count)s offsets held back by an open transaction.", offsets
        )
        % {"count": numbers.count(offsets)},
        places=ngettext("%(named)s and %(count)s more partition", "%(named)s and %(count)s more partitions", more)
        % {"named": named, "count": numbers.count(more)}
        if more > 0
        else named,
        command=f"kafka-transactions.sh --bootstrap-server {_server(mirror)} find-hanging --topic {mirror.source_topic} "
        f"--partition {first}",
    )


def _is_long(row: MirrorPartition, now: datetime) -> bool:
    return row.caught_up_at is None or now - row.caught_up_at > SHOWN_AFTER


def _server(mirror: MirrorTopic) -> str:
    return source_servers(mirror.link).split(",", maxsplit=1)[0]


# --- lineage ----------------------------------------------------------------------------------------------------------
#
# Partitions with the same cluster, topic, link and start time form a row.


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginRow:
    """An origin of records: a topic that they were copied from."""

    topic: str
    cluster: str  # name if registered, else cluster ID
    link: str
    offsets: str
    partitions: str
    ranges: Sequence[str]
    more: int
    since: Moment | None
    until: Moment | None
    behind: Sequence[str]  # the upstream origins, nearest first
    hidden: bool


def origin_rows(origins: Iterable[Origin], *, names: Mapping[str, str], now: datetime) -> list[OriginRow]:
    """Return the rows of the origins, oldest first. ``names``: names of visible clusters by cluster ID."""
    groups: dict[tuple[datetime, str, str, str], list[Origin]] = defaultdict(list)
    for origin in origins:
        groups[origin.since, origin.cluster_id, origin.topic, origin.link_name].append(origin)
    return [_row(groups[key], names=names, now=now) for key in sorted(groups)]


def _row(group: Sequence[Origin], *, names: Mapping[str, str], now: datetime) -> OriginRow:
    first = group[0]
    ends = [origin.until for origin in group if origin.until]
    until = max(ends, default=None) if len(ends) == len(group) else None
    partitions = len({origin.partition for origin in group})
    return OriginRow(
        topic=first.topic,
        cluster=names.get(first.cluster_id, first.cluster_id),
        link=first.link_name,
        offsets=_offsets(sum(origin.end - origin.start for origin in group)),
        partitions=ngettext("%(count)s partition", "%(count)s partitions", partitions) % {"count": numbers.count(partitions)},
        ranges=[
            gettext("partition %(partition)s: %(first)s to %(last)s")
            % {"partition": origin.partition, "first": f"{origin.start:,}", "last": f"{origin.end:,}"}
            for origin in group[:SHOWN_RANGES]
        ],
        more=max(0, len(group) - SHOWN_RANGES),
        since=moment(first.since, now=now),
        until=moment(until, now=now) if until else None,
        behind=list(dict.fromkeys(_chain(group, names))),
        hidden=first.hidden,
    )


def _chain(origins: Iterable[Origin], names: Mapping[str, str]) -> list[str]:
    chain: list[str] = []
    for origin in origins:
        for upstream in origin.upstream:
            if upstream.hidden:
                chain.append(gettext("a topic that you do not have permission to see"))
                continue
            cluster = names.get(upstream.cluster_id, upstream.cluster_id)
            values = {"topic": upstream.topic, "cluster": cluster, "link_name": upstream.link_name}
            chain.append(gettext("%(topic)s on %(cluster)s, over link %(link_name)s") % values)
            chain += _chain([upstream], names)
    return chain
