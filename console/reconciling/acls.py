"""The ledger of synced ACLs: reads its rows as facts for a decision, and stores decisions as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from console.models import ClusterLink, MirrorTopic, Namespace, SyncedAcl
from console.models.links import show_change
from linkengine.domain.acls import Acl, AclFacts, AclPlan, AclRow, AclStatus, namespace_guard, parse_acl_filters, topic_guard
from linkengine.domain.errors import LinkEngineError

KEY = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_VALUES = ("status", "message", "is_conflict")
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
    changed = [_row(link, planned, now=now) for planned in plan.rows if _differs(present.get(planned.acl), planned)]
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


def _differs(row: SyncedAcl | None, planned: AclRow) -> bool:
    return row is None or (row.status, row.message, row.is_conflict) != (planned.status, planned.message, planned.is_conflict)


def _batches(keys: Sequence[int], *, size: int = 500) -> list[Sequence[int]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]
