"""ACLs as values, filters for them, and the decisions of ACL sync. Pure functions over sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import TranslatableText, gettext_lazy, gettext_noop
from linkengine.domain.names import read_document

# --- values and filters --------------------------------------------------------------------------------------------------
# The format of filters is ``{"aclFilters": [{"resourceFilter": {…}, "accessFilter": {…}}, …]}``. A field that is left out, or
# "any", matches everything. Pattern type "match" matches every ACL that applies to the named resource.


UNKNOWN = "UNKNOWN"
_ANY = "ANY"
_RESOURCES = (_ANY, "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
_PATTERNS = (_ANY, "MATCH", "LITERAL", "PREFIXED")
_PERMISSIONS = (_ANY, "ALLOW", "DENY")
_OPERATIONS = (
    _ANY, "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
)  # fmt: skip
_RESOURCE_FIELDS, _ACCESS_FIELDS = {"resourceType", "patternType", "name"}, {"principal", "host", "operation", "permissionType"}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """An ACL in Kafka's words, in upper case. A word that the client library lacks is UNKNOWN."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str

    @property
    def is_known(self) -> bool:
        """Whether the client library can create the ACL as it is."""
        return UNKNOWN not in {self.resource_type, self.pattern_type, self.operation, self.permission}

    @property
    def opposite(self) -> Acl:
        """The same ACL with the other permission."""
        return replace(self, permission="DENY" if self.permission == "ALLOW" else "ALLOW")

    def __str__(self) -> str:
        where = f"{self.resource_type} {self.pattern_type} {self.resource_name}"
        return f"{self.permission} {self.operation} on {where} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """One row of ``acl.filters``; None and ANY match everything."""

    resource_type: str = _ANY
    pattern_type: str = _ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str = _ANY
    permission: str = _ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter matches ``acl``."""
        return (
            self.resource_type in {_ANY, acl.resource_type}
            and self.operation in {_ANY, acl.operation}
            and self.permission in {_ANY, acl.permission}
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type == "MATCH":  # every ACL that would apply to a resource of this name
            if self.name is None:
                return True
            return (
                self.name.startswith(acl.resource_name)
                if acl.pattern_type == "PREFIXED"
                else acl.resource_name in {"*", self.name}
            )
        return self.pattern_type in {_ANY, acl.pattern_type} and self.name in {None, acl.resource_name}


def parse_acl_filters(text: str) -> tuple[AclFilter, ...]:
    """Parse ``{"aclFilters": [{"resourceFilter": {…}, "accessFilter": {…}}, …]}``; raise MISCONFIGURATION_ERROR by row."""
    document = read_document(text)
    rows = document.get("aclFilters") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise _wrong('The filters must be an object with the list "aclFilters".')
    return tuple(_parse_row(row, number=number) for number, row in enumerate(rows, start=1))


def _parse_row(row: Any, *, number: int) -> AclFilter:
    where = f"aclFilters row {number}"
    if not isinstance(row, dict) or set(row) - {"resourceFilter", "accessFilter"}:
        raise _wrong(f'{where} must be an object with "resourceFilter" and "accessFilter".')
    resource, access = _part(row, "resourceFilter", _RESOURCE_FIELDS, where), _part(row, "accessFilter", _ACCESS_FIELDS, where)
    return AclFilter(
        resource_type=_word(resource, "resourceType", _RESOURCES, where),
        pattern_type=_word(resource, "patternType", _PATTERNS, where),
        name=_text(resource, "name", where),
        principal=_text(access, "principal", where),
        host=_text(access, "host", where),
        operation=_word(access, "operation", _OPERATIONS, where),
        permission=_word(access, "permissionType", _PERMISSIONS, where),
    )


def _part(row: dict[str, Any], key: str, known: set[str], where: str) -> dict[str, Any]:
    part = row.get(key, {})
    if not isinstance(part, dict):
        raise _wrong(f"{where}: {key} must be an object.")
    unknown = sorted(set(part) - known)
    if unknown:
        raise _wrong(f"{where}: {key} has unknown fields: {', '.join(unknown)}. Use {', '.join(sorted(known))}.")
    return part


def _word(part: dict[str, Any], key: str, known: tuple[str, ...], where: str) -> str:
    value = part.get(key, _ANY)
    word = value.upper().replace("-", "_") if isinstance(value, str) else ""
    if word not in known:
        raise _wrong(f"{where}: {key} must be one of {', '.join(known).lower()}, not {value!r}.")
    return word


def _text(part: dict[str, Any], key: str, where: str) -> str | None:
    value = part.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise _wrong(f"{where}: {key} must be a text that is not empty. Leave it out to match all.")
    return value


def _wrong(message: str) -> LinkEngineError:
    return LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, message)


# --- sync ----------------------------------------------------------------------------------------------------------------
# Kafka's ACLs have no owner, so a ledger records which ACLs a link created. Only those are deleted again, and only when the
# source no longer has them. ACLs that existed before, that another link also syncs, and that protect mirror topics stay
# untouched.


EVERYBODY, EVERYWHERE = "User:*", "*"


class AclStatus(StrEnum):
    """How a link treats an ACL of its source."""

    CREATED = "CREATED"  # by this link: deleted when the source removes it
    ALREADY_THERE = "ALREADY_THERE"  # created by someone else: never deleted
    SHARED = "SHARED"  # created by another link
    OUT_OF_FILTER = "OUT_OF_FILTER"  # created by this link, no longer included: left in place
    GUARD = "GUARD"  # set by this console on the source, or of the form that makes mirrors read-only: not synced
    CAME_FROM_HERE = "CAME_FROM_HERE"  # created on the source by a link in the other direction
    UNSUPPORTED = "UNSUPPORTED"  # of a type that the client library lacks
    FAILED = "FAILED"  # refused by the destination


_SYNCED = frozenset({AclStatus.CREATED, AclStatus.SHARED})  # deleted by the last link that has it with such a status
_CREATED_BY_LINK = frozenset({AclStatus.CREATED, AclStatus.OUT_OF_FILTER})  # by the link that has it with such a status
_RELEASED = "acl.filters no longer includes it. It stays on the destination; delete it by hand if it is not needed."
_OWN = "It protects a topic or a namespace of the source cluster, so it is not synced."
_REASONS: Mapping[AclStatus, str] = {
    AclStatus.ALREADY_THERE: "It existed on the destination before. It stays when the source removes it.",
    AclStatus.GUARD: "It has the form of the ACL that makes mirror topics read-only, so it is not synced.",
    AclStatus.CAME_FROM_HERE: "Another link copied it from this cluster to the source, so it is not synced back.",
    AclStatus.UNSUPPORTED: "The client library does not support its resource type or operation. Create it by hand.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFacts:
    """The input of the plan. ``others`` are ledgers of other links to the same destination, by link name."""

    source: Collection[Acl]
    destination: Collection[Acl]
    filters: tuple[AclFilter, ...]
    ledger: Mapping[Acl, AclStatus] = field(default_factory=dict)
    others: Mapping[str, Mapping[Acl, AclStatus]] = field(default_factory=dict)
    echoes: Collection[Acl] = ()  # on the source only because a link from the destination created them there
    seeding: Collection[str] = ()  # mirror topics of the destination that may currently be hidden by DENY READ
    guards: Collection[Acl] = ()  # set by this console on the source, for the source's own topics and namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRow:
    """A row of the ledger as it should be; ``message`` says why the ACL is not simply synced, or what contradicts it."""

    acl: Acl
    status: AclStatus
    message: str = ""
    is_conflict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPlan:
    """Changes in their order. DENY is created first and deleted last, so that access is never wider than intended."""

    create: tuple[Acl, ...] = ()
    delete: tuple[Acl, ...] = ()
    rows: tuple[AclRow, ...] = ()
    forget: tuple[Acl, ...] = ()  # removed from the ledger, not from the destination


def plan_acls(facts: AclFacts) -> AclPlan:
    """Return the plan for every ACL of the source and every row of the ledger."""
    chosen = {acl for acl in facts.source if any(acl_filter.matches(acl) for acl_filter in facts.filters)}
    rows = [_row(acl, facts) for acl in sorted(chosen)]
    create = [row.acl for row in rows if row.status is AclStatus.CREATED and row.acl not in facts.destination]
    released = [acl for acl in facts.ledger if acl not in chosen and acl in facts.source and _is_last_owner(acl, facts)]
    rows += [AclRow(acl=acl, status=AclStatus.OUT_OF_FILTER, message=_RELEASED) for acl in sorted(released)]
    gone = {acl for acl in facts.ledger if acl not in chosen} - set(released)
    delete = [acl for acl in gone if facts.ledger[acl] in _SYNCED and not _stays_for_others(acl, facts)]
    return AclPlan(
        create=tuple(sorted(create, key=lambda acl: (acl.permission != "DENY", acl))),
        delete=tuple(sorted(delete, key=lambda acl: (acl.permission == "DENY", acl))),
        rows=tuple(rows),
        forget=tuple(sorted(gone - set(delete))),
    )


def inequalities(facts: AclFacts) -> list[TranslatableText]:
    """Return sentences about included ACLs that differ between the two sides, except those left alone on purpose."""
    plan = plan_acls(facts)
    unknown = [row.acl for row in plan.rows if row.status is AclStatus.UNSUPPORTED]
    contradicted = [row.acl for row in plan.rows if row.status is not AclStatus.UNSUPPORTED and _contradiction(row.acl, facts)]
    found = (
        (
            plan.create,
            gettext_noop("%(count)s ACLs of the source are missing on the destination, for example %(acl)s."),
        ),
        (
            [acl for acl in plan.delete if acl in facts.destination],
            gettext_noop("%(count)s ACLs of the destination have been removed at the source, for example %(acl)s."),
        ),
        (
            unknown,
            gettext_noop(
                "%(count)s ACLs cannot be synced; create them by hand and exclude them from acl.filters, for example %(acl)s."
            ),
        ),
        (
            contradicted,
            gettext_noop("%(count)s ACLs are contradicted by an ACL of the destination, for example %(acl)s."),
        ),
    )
    return [gettext_lazy(text, count=len(acls), acl=_words(acls[0])) for acls, text in found if acls]


def _words(acl: Acl) -> str:
    return f"{acl.permission} {acl.operation} on {acl.resource_type} {acl.resource_name} for {acl.principal}"


def _row(acl: Acl, facts: AclFacts) -> AclRow:
    status, message = _status(acl, facts)
    contradiction = _contradiction(acl, facts) if status in _SYNCED | {AclStatus.ALREADY_THERE} else ""
    is_conflict = bool(contradiction) or status is AclStatus.ALREADY_THERE
    return AclRow(acl=acl, status=status, message=" ".join(filter(None, (message, contradiction))), is_conflict=is_conflict)


def _status(acl: Acl, facts: AclFacts) -> tuple[AclStatus, str]:
    maker = next((name for name, ledger in facts.others.items() if ledger.get(acl) is AclStatus.CREATED), "")
    if not acl.is_known:
        status = AclStatus.UNSUPPORTED
    elif is_guard(acl) or (acl.resource_name in facts.seeding and is_guard(acl, operation="READ")):
        status = AclStatus.GUARD
    elif acl in facts.guards and facts.ledger.get(acl) is not AclStatus.CREATED:  # if synced before, it is deleted with it
        return AclStatus.GUARD, _OWN
    elif acl in facts.echoes:
        status = AclStatus.CAME_FROM_HERE
    elif facts.ledger.get(acl) in _CREATED_BY_LINK or acl not in facts.destination:
        status = AclStatus.CREATED
    elif not maker and facts.ledger.get(acl) is AclStatus.SHARED:
        status = AclStatus.CREATED  # the link that created it no longer needs it: taken over
    elif maker:
        return AclStatus.SHARED, f"Link {maker!r} has synced it too. It stays until neither source has it."
    else:
        status = AclStatus.ALREADY_THERE
    return status, _REASONS.get(status, "")


def is_guard(acl: Acl, *, operation: str = "WRITE") -> bool:
    """Return whether an ACL makes a mirror topic read-only (or, for READ, hides it during seeding).

    The middle cluster of a chain has these on its own mirrors. Synced further, they would outlive a promotion downstream.
    """
    return acl == topic_guard(acl.resource_name, operation=operation)


def topic_guard(topic: str, *, operation: str = "WRITE") -> Acl:
    """Return the ACL that makes a topic read-only, or for READ hides it."""
    return _denial(topic, pattern_type="LITERAL", operation=operation)


def namespace_guard(prefix: str) -> Acl:
    """Return the ACL that keeps other users from creating topics in a reserved namespace."""
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
    maker = next((name for name, ledger in facts.others.items() if ledger.get(opposite) in _SYNCED), "")
    who = f"Link {maker!r} has synced" if maker else "The destination itself has"
    return f"{who} the opposite ACL ({opposite.permission}). DENY wins; make both sources, or the destination, agree."


def _is_last_owner(acl: Acl, facts: AclFacts) -> bool:
    """Return whether no other link needs an ACL: this link created it, or the link that did no longer needs it."""
    status = facts.ledger.get(acl)
    return status in _CREATED_BY_LINK or (status is AclStatus.SHARED and not _stays_for_others(acl, facts))


def _stays_for_others(acl: Acl, facts: AclFacts) -> bool:
    return any(ledger.get(acl) in _SYNCED | _CREATED_BY_LINK for ledger in facts.others.values())
