"""Consumer groups as rows: what a run shall do, what it may remember, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Q, QuerySet

from console.actions.groups import let_wait
from console.gatepolicies import GATED
from console.models import ClampedOffset, ClusterLink, GroupOffset, MirrorTopic, SyncedGroup
from console.models.fields import key_of
from console.models.links import show_change
from console.models.mirrors import AHEAD
from console.policies import carries_offsets
from linkengine.domain import groupplans
from linkengine.domain.filters import parse_filters
from linkengine.domain.groupplans import GroupOutcome, GroupReport, GroupSync, KnownOffset, MirroredTopic, PartitionOutcome
from linkengine.domain.groups import SETTLED, Group, GroupStatus, Memory, Remembered
from linkengine.domain.states import MirrorState, StopReason

RENEW_AFTER = timedelta(hours=1)  # Kafka forgets offsets of a group without members after offsets.retention.minutes
FORGET_AFTER = timedelta(days=1)  # a group the source does not list any more
_FOLLOWING = (MirrorState.ACTIVE, MirrorState.SOURCE_UNAVAILABLE, MirrorState.PENDING_SYNCHRONIZE)
_LOOKED_AT = (*_FOLLOWING, *GATED)  # a gate carries groups over in some states more
_ACTED = ("acted_source", "acted_destination", "acted_at")
_SEEN = ("source_offset", "destination_offset", "target", "outcome", "message")


def mirrors_of(link: ClusterLink) -> list[MirrorTopic]:
    """List the mirrors that groups follow all the time."""
    return list(link.mirrors.filter(_unstopped(_FOLLOWING), drill=None, num_partitions__gt=0))


def still_following(link: ClusterLink, mirrors: Iterable[MirrorTopic], *, strict: bool = False) -> set[str]:
    """Answer the names of those that groups follow at this moment; ``strict`` as in ``sync_of``.

    A stop marks its mirror (``fencing_at``) before it writes the fence. Asked for by row: one that was deleted and made anew
    under the same name is another one.
    """
    states = _LOOKED_AT if strict else _FOLLOWING
    rows = link.mirrors.filter(_unstopped(states), pk__in=[one.pk for one in mirrors])
    return set(rows.values_list("name", flat=True))


def sync_of(link: ClusterLink, mirrors: Iterable[MirrorTopic], *, strict: bool = False, now: datetime) -> GroupSync:
    """Answer what a run over these mirrors shall do: a batch of groups, or all, ``strict``, as a promotion needs it."""
    text = link.config("consumer.offset.group.filters")
    prefixed = link.config("consumer.group.prefix.enable") == "true"
    common = {
        "filters": parse_filters(text, key="groupFilters") if text else (),
        "topics": tuple(_topic(one) for one in mirrors),
        "group_prefix": link.prefix if prefixed else "",
        "known": tuple(Group(name=name, kind=kind) for name, kind in link.groups.values_list("name", "kind")),
    }
    if strict:
        return GroupSync(**common, batch=None, strict=True)  # type: ignore[arg-type]
    return GroupSync(**common, after=_last_looked_at(link, now=now))  # type: ignore[arg-type]


def recall(link: ClusterLink, names: Sequence[str], *, now: datetime) -> dict[str, Memory]:
    """Answer what earlier runs did with these groups."""
    found: dict[str, dict[tuple[str, int], Remembered]] = {}
    for row in _offsets(link, names).exclude(acted_source=None):
        found.setdefault(row.group.name, {})[row.mirror.name, row.partition] = _remembered(row, now=now)
    return dict(found)


def store_report(*, link: ClusterLink, report: GroupReport, whole: bool, now: datetime) -> None:
    """Keep what a run saw. ``whole``: it was over all mirrors, so that its word on a group is the group's."""
    outcomes = [one for one in report.groups if whole or one.partitions]
    with transaction.atomic():
        _store_groups(link, outcomes, whole=whole, now=now)
        if whole and not report.incomplete:
            _note_missing(link, hidden=[one.name for one in outcomes if not one.is_listed], now=now)
        _store_offsets(link, [one for one in outcomes if one.partitions], now=now)
        if _was_switched_off(link):
            let_wait(link)  # no other run would come to correct what this one says
        show_change(link.pk)


def known_offsets(mirror: MirrorTopic) -> tuple[KnownOffset, ...]:
    """Answer what a stop must know of the groups that follow; nothing where the link carries no offsets over."""
    if not carries_offsets(mirror.link):
        return ()
    rows = GroupOffset.objects.filter(mirror=mirror).exclude(group__status=GroupStatus.EXCLUDED).select_related("group")
    return tuple(
        KnownOffset(
            group=row.group.destination_name,
            partition=row.partition,
            source=row.source_offset,
            remembered=None if row.acted_source is None else _remembered(row),
        )
        for row in rows
    )


def store_clamped(*, mirror: MirrorTopic, clamped: Iterable[groupplans.ClampedOffset], now: datetime) -> None:
    """Keep which groups a stop has set back; what a repeated attempt finds later does not overwrite it."""
    rows = [
        ClampedOffset(
            mirror=mirror,
            stopping_since=mirror.state_since,
            group=one.group,
            partition=one.partition,
            source_offset=one.source,
            before=one.before,
            after=one.after,
            message=one.message,
            at=now,
        )
        for one in clamped
    ]
    ClampedOffset.objects.bulk_create(rows, ignore_conflicts=True, batch_size=500)


def _unstopped(states: Iterable[MirrorState]) -> Q:
    """Choose what is in one of these states, or being promoted, as long as nobody has begun to fence or to delete it."""
    promoting = Q(state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.PROMOTE)
    return (Q(state__in=states) | promoting) & Q(fencing_at=None, deletion_requested_at=None)


def _topic(mirror: MirrorTopic) -> MirroredTopic:
    return MirroredTopic(
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        partitions=mirror.num_partitions,
        source_topic_id=mirror.source_topic_id,
        mirror_topic_id=mirror.mirror_topic_id,
    )


def _last_looked_at(link: ClusterLink, *, now: datetime) -> str:
    """Answer the name at which the latest batch ended; the next one begins behind it.

    A look that lies ahead was noted before a clock was set back: it would stay the latest, and one batch come again and again.
    """
    groups = SyncedGroup.objects.filter(link=link, looked_at__lte=now + AHEAD)
    latest = groups.aggregate(latest=Max("looked_at"))["latest"]
    names = groups.filter(looked_at=latest).values_list("name", flat=True) if latest else ()
    return max(names, default="")  # in the order of ``next_batch``: a database may sort names in another one


def _remembered(row: GroupOffset, *, now: datetime | None = None) -> Remembered:
    stale = now is not None and (row.acted_at is None or row.acted_at < now - RENEW_AFTER)
    return Remembered(source=row.acted_source or 0, destination=row.acted_destination or 0, stale=stale)


def _offsets(link: ClusterLink, names: Iterable[str]) -> QuerySet[GroupOffset]:
    return GroupOffset.objects.filter(group__link=link, group__name_key__in=map(key_of, names)).select_related(
        "group", "mirror"
    )


def _was_switched_off(link: ClusterLink) -> bool:
    """Tell whether somebody has switched it off since the run began, for which the link had been read."""
    present = ClusterLink.objects.filter(pk=link.pk).first()
    return present is not None and not carries_offsets(present)


def _store_groups(link: ClusterLink, outcomes: Iterable[GroupOutcome], *, whole: bool, now: datetime) -> None:
    waiting = [one for one in outcomes if one.status is GroupStatus.WAITING]
    told = [one for one in outcomes if one.is_listed and one.status is not GroupStatus.WAITING]
    hidden = [one for one in outcomes if not one.is_listed]
    fields = ["destination_name", "kind", "status", "message"]
    # looked_at is where the next batch begins: neither the look of a promotion nor a group without a turn may move that
    with_times = [*fields, "listed_at", *(["looked_at"] if whole else [])]
    _upsert([_group(link, one, looked_at=now if whole else None, now=now) for one in told], fields=with_times)
    _upsert([_group(link, one, looked_at=None, now=now) for one in hidden], fields=fields)
    _upsert([_group(link, one, looked_at=None, now=now) for one in waiting], fields=["listed_at"])  # what was known of it stays


def _upsert(rows: Iterable[SyncedGroup], *, fields: Sequence[str]) -> None:
    SyncedGroup.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["link", "name_key"], update_fields=fields, batch_size=200
    )


def _group(link: ClusterLink, one: GroupOutcome, *, looked_at: datetime | None, now: datetime) -> SyncedGroup:
    skipped = one.status in {GroupStatus.EXCLUDED, GroupStatus.UNSUPPORTED_TYPE}
    return SyncedGroup(
        link=link,
        name=one.name,
        destination_name=one.destination_name,
        kind=one.kind,
        status=one.status,
        message=one.message,
        looked_at=None if skipped else looked_at,
        listed_at=now,
    )


def _note_missing(link: ClusterLink, *, hidden: Sequence[str], now: datetime) -> None:
    missing = SyncedGroup.objects.filter(link=link, listed_at__lt=now).exclude(name_key__in=map(key_of, hidden))
    missing.filter(listed_at__lt=now - FORGET_AFTER).delete()
    message = (
        "The source does not list this group any more: it was deleted, or its offsets have expired. Its offsets here stay as "
        "they are."
    )
    missing.update(status=GroupStatus.NOT_LISTED, message=message)


def _store_offsets(link: ClusterLink, outcomes: Sequence[GroupOutcome], *, now: datetime) -> None:
    """Write the partitions that changed; most never do between two runs."""
    names = [one.name for one in outcomes]
    groups = {row.name: row for row in SyncedGroup.objects.filter(link=link, name_key__in=map(key_of, names))}
    mirrors = {row.name: row for row in link.mirrors.all()}
    present = {(row.group_id, row.mirror_id, row.partition): row for row in _offsets(link, names)}
    acted: list[GroupOffset] = []
    seen: list[GroupOffset] = []
    for group in outcomes:
        for one in group.partitions:
            mirror = mirrors.get(one.mirror_topic)
            if mirror is None:  # deleted in the meantime
                continue
            row = GroupOffset(group=groups[group.name], mirror=mirror, partition=one.partition, **_values(one, now=now))
            old = present.get((row.group_id, row.mirror_id, row.partition))
            if old is None or _differs(old, row, written=one.written):
                (acted if one.outcome in SETTLED else seen).append(row)
    _write(acted, fields=[*_SEEN, *_ACTED])
    _write(seen, fields=_SEEN)


def _write(rows: Iterable[GroupOffset], *, fields: Sequence[str]) -> None:
    unique = ["group", "mirror", "partition"]
    GroupOffset.objects.bulk_create(rows, update_conflicts=True, unique_fields=unique, update_fields=fields, batch_size=200)


def _values(one: PartitionOutcome, *, now: datetime) -> Mapping[str, Any]:
    settled = one.outcome in SETTLED
    return {
        "source_offset": one.source,
        "destination_offset": one.destination,
        "target": one.target,
        "outcome": one.outcome,
        "message": one.message,
        "acted_source": one.source if settled else None,
        "acted_destination": one.target if settled else None,
        "acted_at": now if settled else None,
    }


def _differs(old: GroupOffset, new: GroupOffset, *, written: bool) -> bool:
    fields = [*_SEEN, *(_ACTED[:2] if new.acted_source is not None else ())]
    return written or any(getattr(old, name) != getattr(new, name) for name in fields)
