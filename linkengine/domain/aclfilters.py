"""ACLs as values, and filters for them: ``{"aclFilters": [{"resourceFilter": {…}, "accessFilter": {…}}, …]}``.

A field that is left out, or "any", matches everything. Pattern type "match" matches every ACL that applies to the named
resource.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.filters import read_document

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
    """An ACL in Kafka's words, in upper case. A word that the client library does not know is UNKNOWN."""

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
