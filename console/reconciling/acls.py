"""The ledger of ACLs: rows as the facts of a decision, and decisions as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from console.models import ClusterLink, MirrorTopic, Namespace, SyncedAcl
from console.models.links import show_change
from linkengine.domain.aclfilters import Acl, parse_acl_filters
from linkengine.domain.acls import AclFacts, AclPlan, AclRow, AclStatus, namespace_guard, topic_guard
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.states import MirrorState

KEY = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_VALUES = ("status", "message", "is_conflict")
Ledger = dict[Acl, AclStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRules:
    """What this console has set by itself, or is about to: no rule of the source's that could follow."""

    seeding: frozenset[str]  # mirror topics of the destination that may be hidden
    guards: frozenset[Acl]  # on the source

    def __or__(self, other: OwnRules) -> OwnRules:
        return OwnRules(seeding=self.seeding | other.seeding, guards=self.guards | other.guards)


def own_rules(link: ClusterLink) -> OwnRules:
    """List our own rules on both sides; three queries. A set-up that failed may have left its rule."""
    hidden = MirrorTopic.objects.exclude(state=MirrorState.STOPPED).filter(Q(num_partitions=0) | Q(holds_copy=False))
    there = hidden.filter(link__destination__cluster_id=link.source_cluster_id).values_list("name", flat=True)
    reserved = Namespace.objects.filter(cluster__cluster_id=link.source_cluster_id).exclude(reserved=False, guarded=False)
    prefixes = reserved.values_list("prefix", flat=True)
    return OwnRules(
        seeding=frozenset(hidden.filter(link__destination=link.destination_id).values_list("name", flat=True)),
        guards=frozenset([*(topic_guard(one, operation="READ") for one in there), *map(namespace_guard, prefixes)]),
    )


def facts_of(link: ClusterLink, *, source: Collection[Acl], destination: Collection[Acl], before: OwnRules) -> AclFacts:
    """Put together what decides; six queries. ``before``: our own rules as they were before the ACLs were read.

    They come and go while the ACLs are read, so what was ours before or is ours after counts.
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
    """Write the ledger as it shall be, before anything is created; answer whether a page would show something new.

    An ACL that a crash leaves uncreated is created by the next run; the other way round it would stay for ever.
    """
    present = {_acl(row): row for row in SyncedAcl.objects.filter(link=link)}
    changed = [_row(link, one, now=now) for one in plan.rows if _differs(present.get(one.acl), one)]
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
    """Keep what came of the changes: what was deleted leaves the ledger, what was refused is not ours."""
    present = {_acl(row): row.pk for row in SyncedAcl.objects.filter(link=link)}
    gone = [present[acl] for acl in deleted if acl in present and acl not in failures]
    with transaction.atomic():
        for batch in _batches(gone):
            SyncedAcl.objects.filter(pk__in=batch).delete()
        refused = [acl for acl in created if acl in failures]
        rows = [AclRow(acl=acl, status=AclStatus.FAILED, message=failures[acl].message) for acl in refused]
        SyncedAcl.objects.bulk_create(
            [_row(link, one, now=now) for one in rows],
            update_conflicts=True,
            unique_fields=["link", *KEY],
            update_fields=_VALUES,
            batch_size=100,
        )


def _acl(row: SyncedAcl) -> Acl:
    return Acl(**{name: getattr(row, name) for name in KEY})


def _row(link: ClusterLink, one: AclRow, *, now: datetime) -> SyncedAcl:
    key = {name: getattr(one.acl, name) for name in KEY}
    return SyncedAcl(link=link, **key, status=one.status, message=one.message, is_conflict=one.is_conflict, since=now)


def _differs(row: SyncedAcl | None, one: AclRow) -> bool:
    return row is None or (row.status, row.message, row.is_conflict) != (one.status, one.message, one.is_conflict)


def _batches(keys: Sequence[int], *, size: int = 500) -> list[Sequence[int]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]
