"""Topics, consumer groups and ACLs of the source of a link that is being created, as far as they may be listed.

A list that could not be read is None, never empty, and ``errors`` has the reason. The preview of filters counts matches in
these lists, so a list that was cut off is named in ``cut``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from linkengine.domain.acls import Acl
from linkengine.domain.groups import KINDS, Group
from linkengine.domain.mirrorability import Topic

MOST_LISTED = 20_000  # of each kind; stored with the draft of the link
MOST_CHARACTERS = 4 << 20  # of the names of each kind: a cluster must not be able to fill the database
TOPICS, GROUPS, ACLS = "topics", "groups", "acls"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceListing:
    """The lists, each ordered by name."""

    topics: tuple[Topic, ...] | None = None
    groups: tuple[Group, ...] | None = None
    acls: tuple[Acl, ...] | None = None
    errors: Mapping[str, str] = field(default_factory=dict)  # why a list is None or incomplete, by its name
    cut: tuple[str, ...] = ()  # names of the lists that have more entries than are kept

    @property
    def synced_groups(self) -> tuple[Group, ...] | None:
        """The groups of types that consumer offset sync supports; "" is the type of a broker that reports none."""
        return None if self.groups is None else tuple(group for group in self.groups if group.kind in ("", *KINDS))

    def to_json(self) -> dict[str, Any]:
        """Return the lists as JSON values, short because they are long."""
        return {
            TOPICS: _rows(self.topics, lambda topic: [topic.name, topic.internal, topic.is_mirror]),
            GROUPS: _rows(self.groups, lambda group: [group.name, group.kind]),
            ACLS: _rows(self.acls, lambda acl: list(astuple(acl))),
            "errors": dict(self.errors),
            "cut": list(self.cut),
        }


def listing_from_json(values: Mapping[str, Any]) -> SourceListing:
    """Return the listing that ``to_json`` wrote."""
    topics, groups, acls = values[TOPICS], values[GROUPS], values[ACLS]
    return SourceListing(
        topics=None if topics is None else tuple(Topic(name=name, internal=i, is_mirror=m) for name, i, m in topics),
        groups=None if groups is None else tuple(Group(name=name, kind=kind) for name, kind in groups),
        acls=None if acls is None else tuple(_acl(row) for row in acls),
        errors=values["errors"],
        cut=tuple(values["cut"]),
    )


def _rows(rows: tuple[Any, ...] | None, to_row: Any) -> list[Any] | None:
    return None if rows is None else [to_row(row) for row in rows]


def _acl(row: list[str]) -> Acl:
    resource_type, resource_name, pattern_type, principal, host, operation, permission = row
    return Acl(
        resource_type=resource_type,
        resource_name=resource_name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )
