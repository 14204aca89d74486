"""Which ACLs follow the source: ownership and conflicts. Pure decisions over sets.

Kafka's ACLs have no owner, so a ledger says which ones a link made: only those are ever removed again, and only when the source
no longer has them. What was there before, what another link also wants, and the rules that guard mirror topics stay untouched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from linkengine.domain.aclfilters import Acl, AclFilter

EVERYBODY, EVERYWHERE = "User:*", "*"


class AclStatus(StrEnum):
    """What a link has to do with an ACL of its source."""

    CREATED = "CREATED"  # by this link: goes when the source removes it
    ALREADY_THERE = "ALREADY_THERE"  # made by somebody else: never removed
    SHARED = "SHARED"  # another link made it
    OUT_OF_FILTER = "OUT_OF_FILTER"  # made by this link, no longer chosen: left in place
    GUARD = "GUARD"  # one of our own rules on the source, or looks like the one that makes mirrors read-only: not carried over
    CAME_FROM_HERE = "CAME_FROM_HERE"  # a link in the other direction made it on the source
    UNSUPPORTED = "UNSUPPORTED"  # of a kind the client library does not know
    FAILED = "FAILED"  # the destination refused it


_CLAIMED = frozenset({AclStatus.CREATED, AclStatus.SHARED})  # removed by the last link that has it so
_KEPT = frozenset({AclStatus.CREATED, AclStatus.OUT_OF_FILTER})
_RELEASED = "acl.filters no longer chooses it. It stays here; remove it by hand if nobody needs it."
_OWN = "It protects a topic or a namespace of the source cluster only, so it is not carried over."
_REASONS: Mapping[AclStatus, str] = {
    AclStatus.ALREADY_THERE: "It was on the destination before. It stays when the source removes it.",
    AclStatus.GUARD: "It has the form of the rule that makes mirror topics read-only, so it is not carried over.",
    AclStatus.CAME_FROM_HERE: "It is on the source only because another link carried it there from this cluster.",
    AclStatus.UNSUPPORTED: "Its kind of resource or operation is not known to the client library. Create it by hand.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFacts:
    """All that decides. ``others`` are ledgers of other links into the same destination, by link name."""

    source: Collection[Acl]
    destination: Collection[Acl]
    filters: tuple[AclFilter, ...]
    ledger: Mapping[Acl, AclStatus] = field(default_factory=dict)
    others: Mapping[str, Mapping[Acl, AclStatus]] = field(default_factory=dict)
    echoes: Collection[Acl] = ()  # on the source only because a link from the destination made them there
    seeding: Collection[str] = ()  # mirror topics of the destination that may be hidden by DENY READ at the moment
    guards: Collection[Acl] = ()  # what this console itself has set on the source, for its own topics and namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRow:
    """One line of the ledger as it shall be; ``message`` says why it is not simply carried over, or what contradicts it."""

    acl: Acl
    status: AclStatus
    message: str = ""
    is_conflict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPlan:
    """What to do, in this order: DENY first where it comes, last where it goes, so that access is never wider than asked."""

    create: tuple[Acl, ...] = ()
    delete: tuple[Acl, ...] = ()
    rows: tuple[AclRow, ...] = ()
    forget: tuple[Acl, ...] = ()  # leave the ledger, stay on the destination


def plan_acls(facts: AclFacts) -> AclPlan:
    """Decide about every ACL of the source and every line of the ledger."""
    chosen = {acl for acl in facts.source if any(one.matches(acl) for one in facts.filters)}
    rows = [_row(acl, facts) for acl in sorted(chosen)]
    create = [row.acl for row in rows if row.status is AclStatus.CREATED and row.acl not in facts.destination]
    released = [acl for acl in facts.ledger if acl not in chosen and acl in facts.source and _is_left_to_us(acl, facts)]
    rows += [AclRow(acl=acl, status=AclStatus.OUT_OF_FILTER, message=_RELEASED) for acl in sorted(released)]
    gone = {acl for acl in facts.ledger if acl not in chosen} - set(released)
    delete = [acl for acl in gone if facts.ledger[acl] in _CLAIMED and not _stays_for_others(acl, facts)]
    return AclPlan(
        create=tuple(sorted(create, key=lambda acl: (acl.permission != "DENY", acl))),
        delete=tuple(sorted(delete, key=lambda acl: (acl.permission == "DENY", acl))),
        rows=tuple(rows),
        forget=tuple(sorted(gone - set(delete))),
    )


def inequalities(facts: AclFacts) -> list[str]:
    """Say which chosen ACLs the destination does not have as the source does; what is left alone on purpose is none of them."""
    plan = plan_acls(facts)
    unknown = [row.acl for row in plan.rows if row.status is AclStatus.UNSUPPORTED]
    contradicted = [row.acl for row in plan.rows if row.status is not AclStatus.UNSUPPORTED and _contradiction(row.acl, facts)]
    found = (
        (plan.create, "of the source are not here yet"),
        ([acl for acl in plan.delete if acl in facts.destination], "are still here although the source has removed them"),
        (unknown, "cannot be carried over; create them by hand and exclude them from acl.filters"),
        (contradicted, "are contradicted by a rule of the destination"),
    )
    return [f"{len(acls)} ACLs {words}, among them {_words(acls[0])}." for acls, words in found if acls]


def _words(acl: Acl) -> str:
    return f"{acl.permission} {acl.operation} on {acl.resource_type} {acl.resource_name} for {acl.principal}"


def _row(acl: Acl, facts: AclFacts) -> AclRow:
    status, message = _status(acl, facts)
    contradiction = _contradiction(acl, facts) if status in _CLAIMED | {AclStatus.ALREADY_THERE} else ""
    is_conflict = bool(contradiction) or status is AclStatus.ALREADY_THERE
    return AclRow(acl=acl, status=status, message=" ".join(filter(None, (message, contradiction))), is_conflict=is_conflict)


def _status(acl: Acl, facts: AclFacts) -> tuple[AclStatus, str]:
    maker = next((name for name, ledger in facts.others.items() if ledger.get(acl) is AclStatus.CREATED), "")
    if not acl.is_known:
        status = AclStatus.UNSUPPORTED
    elif is_guard(acl) or (acl.resource_name in facts.seeding and is_guard(acl, operation="READ")):
        status = AclStatus.GUARD
    elif acl in facts.guards and facts.ledger.get(acl) is not AclStatus.CREATED:  # else carried over before: goes with it
        return AclStatus.GUARD, _OWN
    elif acl in facts.echoes:
        status = AclStatus.CAME_FROM_HERE
    elif facts.ledger.get(acl) in _KEPT or acl not in facts.destination:
        status = AclStatus.CREATED
    elif not maker and facts.ledger.get(acl) is AclStatus.SHARED:
        status = AclStatus.CREATED  # its maker needs it no more: taken over
    elif maker:
        return AclStatus.SHARED, f"Link {maker!r} has carried it over too; it stays until neither source has it."
    else:
        status = AclStatus.ALREADY_THERE
    return status, _REASONS.get(status, "")


def is_guard(acl: Acl, *, operation: str = "WRITE") -> bool:
    """Tell whether a rule is the one that makes a mirror topic read-only (or, for READ, hides it while it is seeded).

    A chain's middle cluster has these on its own mirrors; carried on, they would outlive a promotion further down.
    """
    return acl == topic_guard(acl.resource_name, operation=operation)


def topic_guard(topic: str, *, operation: str = "WRITE") -> Acl:
    """Answer the rule that makes a topic read-only, or for READ hides it."""
    return _denial(topic, pattern_type="LITERAL", operation=operation)


def namespace_guard(prefix: str) -> Acl:
    """Answer the rule that keeps others from creating topics in a reserved namespace."""
    return _denial(prefix, pattern_type="PREFIXED", operation="CREATE")


def _denial(name: str, *, pattern_type: str, operation: str) -> Acl:
    return Acl(
        resource_type="TOPIC",
        resource_name=name,
        pattern_type=pattern_type,
        principal=EVERYBODY,
        host=EVERYWHERE,
        operation=operation,
        permission="DENY",
    )


def _contradiction(acl: Acl, facts: AclFacts) -> str:
    opposite = acl.opposite
    if opposite in facts.source or opposite not in facts.destination:
        return ""
    maker = next((name for name, ledger in facts.others.items() if ledger.get(opposite) in _CLAIMED), "")
    who = f"Link {maker!r} has carried over" if maker else "The destination has of its own"
    return f"{who} the opposite ({opposite.permission}). DENY wins; make both sources, or the destination, agree."


def _is_left_to_us(acl: Acl, facts: AclFacts) -> bool:
    """Tell whether this link is the last that knows of an ACL: its own, or one that its maker needs no more."""
    status = facts.ledger.get(acl)
    return status in _KEPT or (status is AclStatus.SHARED and not _stays_for_others(acl, facts))


def _stays_for_others(acl: Acl, facts: AclFacts) -> bool:
    return any(ledger.get(acl) in _CLAIMED | _KEPT for ledger in facts.others.values())
