"""Consumer groups and ACLs as rows: what a sync run is to do, what earlier runs did, and the outcome of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Q, QuerySet

from console.links.actions import set_groups_waiting
from console.links.rules import syncs_offsets
from console.models import ClampedOffset, ClusterLink, GroupOffset, MirrorTopic, Namespace, SyncedAcl, SyncedGroup
from console.models.fields import key_of
from console.models.links import show_change
from console.models.mirrors import AHEAD
from console.verification.rules import GATED
from linkengine.domain import groups
from linkengine.domain.acls import Acl, AclFacts, AclPlan, AclRow, AclStatus, namespace_guard, parse_acl_filters, topic_guard
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groups import (
    SETTLED,
    Group,
    GroupOutcome,
    GroupReport,
    GroupStatus,
    GroupSync,
    KnownOffset,
    Memory,
    MirroredTopic,
    PartitionOutcome,
    Remembered,
)
from linkengine.domain.names import parse_filters
from linkengine.domain.states import MirrorState, StopReason

# --- consumer groups --------------------------------------------------------------------------------------------------


RENEW_AFTER = timedelta(hours=1)  # Kafka forgets offsets of a group without members after offsets.retention.minutes
FORGET_AFTER = timedelta(days=1)  # after the source last listed the group
_FOLLOWING = (MirrorState.ACTIVE, MirrorState.SOURCE_UNAVAILABLE, MirrorState.PENDING_SYNCHRONIZE)
_FOLLOWING_IN_GATE = (*_FOLLOWING, *GATED)  # a migration gate syncs groups in some more states
_ACTED = ("acted_source", "acted_destination", "acted_at")
_SEEN = ("source_offset", "destination_offset", "target", "outcome", "message")


def mirrors_of(link: ClusterLink) -> list[MirrorTopic]:
    """Return the mirrors whose groups are synced continuously."""
    return list(link.mirrors.listed().filter(_unstopped(_FOLLOWING), num_partitions__gt=0))


def still_following(link: ClusterLink, mirrors: Iterable[MirrorTopic], *, strict: bool = False) -> set[str]:
    """Return the names of the mirrors whose groups are synced at this moment; ``strict`` as in ``sync_of``.

    A stop marks its mirror (``fencing_at``) before it writes the fence. Queried by primary key, since a mirror that was
    deleted and created anew has the same name.
    """
    states = _FOLLOWING_IN_GATE if strict else _FOLLOWING
    rows = link.mirrors.filter(_unstopped(states), pk__in=[mirror.pk for mirror in mirrors])
    return set(rows.values_list("name", flat=True))


def sync_of(link: ClusterLink, mirrors: Iterable[MirrorTopic], *, strict: bool = False, now: datetime) -> GroupSync:
    """Return the plan of a sync over these mirrors: of a batch of groups, or (``strict``, for a promotion) of all groups."""
    text = link.config("consumer.offset.group.filters")
    prefixed = link.config("consumer.group.prefix.enable") == "true"
    common = {
        "filters": parse_filters(text, key="groupFilters") if text else (),
        "topics": tuple(_topic(mirror) for mirror in mirrors),
        "group_prefix": link.prefix if prefixed else "",
        "known": tuple(Group(name=name, kind=kind) for name, kind in link.groups.values_list("name", "kind")),
    }
    if strict:
        return GroupSync(**common, batch=None, strict=True)  # type: ignore[arg-type]
    return GroupSync(**common, after=_last_checked_at(link, now=now))  # type: ignore[arg-type]


def recall(link: ClusterLink, names: Sequence[str], *, now: datetime) -> dict[str, Memory]:
    """Return what earlier runs did with these groups."""
    found: dict[str, dict[tuple[str, int], Remembered]] = {}
    for row in _offsets(link, names).exclude(acted_source=None):
        found.setdefault(row.group.name, {})[row.mirror.name, row.partition] = _remembered(row, now=now)
    return dict(found)


def store_report(*, link: ClusterLink, report: GroupReport, whole: bool, now: datetime) -> None:
    """Store the outcome of a run. ``whole``: it covered all mirrors, so its status of a group is that of the group."""
    outcomes = [outcome for outcome in report.groups if whole or outcome.partitions]
    with transaction.atomic():
        _store_groups(link, outcomes, whole=whole, now=now)
        if whole and not report.incomplete:
            _note_missing(link, hidden=[outcome.name for outcome in outcomes if not outcome.is_listed], now=now)
        _store_offsets(link, [outcome for outcome in outcomes if outcome.partitions], now=now)
        if _was_switched_off(link):
            set_groups_waiting(link)  # no later run would correct it
        show_change(link.pk)


def known_offsets(mirror: MirrorTopic) -> tuple[KnownOffset, ...]:
    """Return the synced offsets that a stop has to check; nothing if the link does not sync consumer offsets."""
    if not syncs_offsets(mirror.link):
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


def store_clamped(clamped: Mapping[MirrorTopic, Iterable[groups.ClampedOffset]], *, now: datetime) -> None:
    """Store which groups stops have reset. A repeated attempt does not overwrite it. One statement."""
    rows = [
        ClampedOffset(
            mirror=mirror,
            stopping_since=mirror.state_since,
            group=offset.group,
            partition=offset.partition,
            source_offset=offset.source,
            before=offset.before,
            after=offset.after,
            message=offset.message,
            at=now,
        )
        for mirror, offsets in clamped.items()
        for offset in offsets
    ]
    ClampedOffset.objects.bulk_create(rows, ignore_conflicts=True, batch_size=500)


def _unstopped(states: Iterable[MirrorState]) -> Q:
    """Select mirrors in these states, or being promoted, whose fencing or deletion has not started."""
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


def _last_checked_at(link: ClusterLink, *, now: datetime) -> str:
    """Return the name of the last group of the latest batch; the next batch begins after it.

    Times ahead of now (a clock was set back since) do not count. They would stay the latest: the same batch would repeat and
    succeed, while no other group is synced.
    """
    groups = SyncedGroup.objects.filter(link=link, looked_at__lte=now + AHEAD)
    latest = groups.aggregate(latest=Max("looked_at"))["latest"]
    names = groups.filter(looked_at=latest).values_list("name", flat=True) if latest else ()
    return max(names, default="")  # in the order of ``next_batch``; the database may sort names differently


def _remembered(row: GroupOffset, *, now: datetime | None = None) -> Remembered:
    stale = now is not None and (row.acted_at is None or row.acted_at < now - RENEW_AFTER)
    return Remembered(source=row.acted_source or 0, destination=row.acted_destination or 0, stale=stale)


def _offsets(link: ClusterLink, names: Iterable[str]) -> QuerySet[GroupOffset]:
    return GroupOffset.objects.filter(group__link=link, group__name_key__in=map(key_of, names)).select_related(
        "group", "mirror"
    )


def _was_switched_off(link: ClusterLink) -> bool:
    """Return whether the sync was disabled since the run started, for which the link had been read."""
    present = ClusterLink.objects.filter(pk=link.pk).first()
    return present is not None and not syncs_offsets(present)


def _store_groups(link: ClusterLink, outcomes: Iterable[GroupOutcome], *, whole: bool, now: datetime) -> None:
    waiting = [outcome for outcome in outcomes if outcome.status is GroupStatus.WAITING]
    listed = [outcome for outcome in outcomes if outcome.is_listed and outcome.status is not GroupStatus.WAITING]
    hidden = [outcome for outcome in outcomes if not outcome.is_listed]
    fields = ["destination_name", "kind", "status", "message"]
    # looked_at is where the next batch begins, so neither a promotion nor a group that waits for its turn may change it
    with_times = [*fields, "listed_at", *(["looked_at"] if whole else [])]
    _upsert([_group(link, outcome, looked_at=now if whole else None, now=now) for outcome in listed], fields=with_times)
    _upsert([_group(link, outcome, looked_at=None, now=now) for outcome in hidden], fields=fields)
    _upsert([_group(link, outcome, looked_at=None, now=now) for outcome in waiting], fields=["listed_at"])  # the rest stays


def _upsert(rows: Iterable[SyncedGroup], *, fields: Sequence[str]) -> None:
    SyncedGroup.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["link", "name_key"], update_fields=fields, batch_size=200
    )


def _group(link: ClusterLink, outcome: GroupOutcome, *, looked_at: datetime | None, now: datetime) -> SyncedGroup:
    skipped = outcome.status in {GroupStatus.EXCLUDED, GroupStatus.UNSUPPORTED_TYPE}
    return SyncedGroup(
        link=link,
        name=outcome.name,
        destination_name=outcome.destination_name,
        kind=outcome.kind,
        status=outcome.status,
        message=outcome.message,
        looked_at=None if skipped else looked_at,
        listed_at=now,
    )


def _note_missing(link: ClusterLink, *, hidden: Sequence[str], now: datetime) -> None:
    missing = SyncedGroup.objects.filter(link=link, listed_at__lt=now).exclude(name_key__in=map(key_of, hidden))
    missing.filter(listed_at__lt=now - FORGET_AFTER).delete()
    message = (
        "The source no longer lists this group: it was deleted, or its offsets have expired. Its offsets on the destination "
        "are not changed."
    )
    missing.update(status=GroupStatus.NOT_LISTED, message=message)


def _store_offsets(link: ClusterLink, outcomes: Sequence[GroupOutcome], *, now: datetime) -> None:
    """Write the partitions that changed; most do not change between two runs."""
    names = [outcome.name for outcome in outcomes]
    groups = {row.name: row for row in SyncedGroup.objects.filter(link=link, name_key__in=map(key_of, names))}
    mirrors = {row.name: row for row in link.mirrors.all()}
    present = {(row.group_id, row.mirror_id, row.partition): row for row in _offsets(link, names)}
    acted: list[GroupOffset] = []
    seen: list[GroupOffset] = []
    for outcome in outcomes:
        for partition in outcome.partitions:
            mirror = mirrors.get(partition.mirror_topic)
            if mirror is None:  # deleted since
                continue
            row = GroupOffset(
                group=groups[outcome.name], mirror=mirror, partition=partition.partition, **_values(partition, now=now)
            )
            old = present.get((row.group_id, row.mirror_id, row.partition))
            if old is None or _differs(old, row, written=partition.written):
                (acted if partition.outcome in SETTLED else seen).append(row)
    _write(acted, fields=[*_SEEN, *_ACTED])
    _write(seen, fields=_SEEN)


def _write(rows: Iterable[GroupOffset], *, fields: Sequence[str]) -> None:
    unique = ["group", "mirror", "partition"]
    GroupOffset.objects.bulk_create(rows, update_conflicts=True, unique_fields=unique, update_fields=fields, batch_size=200)


def _values(partition: PartitionOutcome, *, now: datetime) -> Mapping[str, Any]:
    settled = partition.outcome in SETTLED
    return {
        "source_offset": partition.source,
        "destination_offset": partition.destination,
        "target": partition.target,
        "outcome": partition.outcome,
        "message": partition.message,
        "acted_source": partition.source if settled else None,
        "acted_destination": partition.target if settled else None,
        "acted_at": now if settled else None,
    }


def _differs(old: GroupOffset, new: GroupOffset, *, written: bool) -> bool:
    fields = [*_SEEN, *(_ACTED[:2] if new.acted_source is not None else ())]
    return written or any(getattr(old, name) != getattr(new, name) for name in fields)


# --- ACLs -------------------------------------------------------------------------------------------------------------


KEY = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_VALUES = ("status", "message", "is_conflict")
_BATCH = 500  # keys in a statement
Ledger = dict[Acl, AclStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRules:
    """ACLs that this console creates itself. They are not the source's, so they are not synced."""

    seeding: frozenset[str]  # mirror topics of the destination that may be hidden while their head is seeded
    guards: frozenset[Acl]  # on the source

    def __or__(self, other: OwnRules) -> OwnRules:
        return OwnRules(seeding=self.seeding | other.seeding, guards=self.guards | other.guards)


def own_rules(link: ClusterLink) -> OwnRules:
    """Return the console's own ACLs on both sides; three queries. A set-up that failed may have left its ACL."""
    hidden = MirrorTopic.objects.unstopped().filter(Q(num_partitions=0) | Q(holds_copy=False))
    there = hidden.filter(link__destination__cluster_id=link.source_cluster_id).values_list("name", flat=True)
    reserved = Namespace.objects.filter(cluster__cluster_id=link.source_cluster_id).exclude(reserved=False, guarded=False)
    prefixes = reserved.values_list("prefix", flat=True)
    return OwnRules(
        seeding=frozenset(hidden.filter(link__destination=link.destination_id).values_list("name", flat=True)),
        guards=frozenset([*(topic_guard(topic, operation="READ") for topic in there), *map(namespace_guard, prefixes)]),
    )


def facts_of(link: ClusterLink, *, source: Collection[Acl], destination: Collection[Acl], before: OwnRules) -> AclFacts:
    """Return the facts for a decision; six queries. ``before``: the console's own ACLs as they were before the ACLs were read.

    They are created and deleted at any time, so an ACL counts as the console's if it was before or is after reading.
    """
    text = link.config("acl.filters")
    neighbours = SyncedAcl.objects.filter(link__destination=link.destination_id).select_related("link")
    ledgers: dict[str, Ledger] = {}
    for row in neighbours:
        ledgers.setdefault(row.link.name, {})[_acl(row)] = AclStatus(row.status)
    backwards = SyncedAcl.objects.filter(
        link__destination__cluster_id=link.source_cluster_id,
        link__source_cluster_id=link.destination.cluster_id,
        status=AclStatus.CREATED,
    )
    own = before | own_rules(link)
    return AclFacts(
        source=source,
        destination=destination,
        filters=parse_acl_filters(text) if text else (),
        ledger=ledgers.pop(link.name, {}),
        others=ledgers,
        echoes=frozenset(_acl(row) for row in backwards),
        seeding=own.seeding,
        guards=own.guards,
    )


def store_plan(*, link: ClusterLink, plan: AclPlan, now: datetime) -> bool:
    """Write the planned ledger before any ACL is created. Returns whether a page would show something new.

    If a crash prevents the creation of an ACL, the next run creates it. In the opposite order the ACL would stay permanently.
    """
    present = {_acl(row): row for row in SyncedAcl.objects.filter(link=link)}
    changed = [_row(link, planned, now=now) for planned in plan.rows if _acl_differs(present.get(planned.acl), planned)]
    forgotten = [present[acl].pk for acl in plan.forget if acl in present]
    with transaction.atomic():
        SyncedAcl.objects.bulk_create(
            changed, update_conflicts=True, unique_fields=["link", *KEY], update_fields=_VALUES, batch_size=100
        )
        for batch in _batches(forgotten):
            SyncedAcl.objects.filter(pk__in=batch).delete()
        if changed or forgotten:
            show_change(link.pk)
    return bool(changed or forgotten)


def store_changes(
    *, link: ClusterLink, created: Iterable[Acl], deleted: Iterable[Acl], failures: Mapping[Acl, LinkEngineError], now: datetime
) -> None:
    """Store the outcome of the changes. Deleted ACLs leave the ledger; refused ones are FAILED, since no link created them."""
    present = {_acl(row): row.pk for row in SyncedAcl.objects.filter(link=link)}
    deleted_rows = [present[acl] for acl in deleted if acl in present and acl not in failures]
    with transaction.atomic():
        for batch in _batches(deleted_rows):
            SyncedAcl.objects.filter(pk__in=batch).delete()
        refused = [acl for acl in created if acl in failures]
        rows = [AclRow(acl=acl, status=AclStatus.FAILED, message=failures[acl].message) for acl in refused]
        SyncedAcl.objects.bulk_create(
            [_row(link, row, now=now) for row in rows],
            update_conflicts=True,
            unique_fields=["link", *KEY],
            update_fields=_VALUES,
            batch_size=100,
        )


def _acl(row: SyncedAcl) -> Acl:
    return Acl(**{name: getattr(row, name) for name in KEY})


def _row(link: ClusterLink, planned: AclRow, *, now: datetime) -> SyncedAcl:
    key = {name: getattr(planned.acl, name) for name in KEY}
    return SyncedAcl(
        link=link, **key, status=planned.status, message=planned.message, is_conflict=planned.is_conflict, since=now
    )


def _acl_differs(row: SyncedAcl | None, planned: AclRow) -> bool:
    return row is None or (row.status, row.message, row.is_conflict) != (planned.status, planned.message, planned.is_conflict)


def _batches(keys: Sequence[int]) -> list[Sequence[int]]:
    return [keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH)]
