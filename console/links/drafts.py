"""The values of a link that is being created in steps, and the link configs that follow from them.

``own`` is the registered cluster on which the link is created, and the other cluster is either registered or described by
``connection``, as Kafka client properties. A filter document is kept while its switch is off, so that the switch can be turned
on again, but it is no config then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from console.models import LinkDraft
from console.models.fields import readable
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS, SECRETS, secrets_to_repeat

REGISTERED, OTHER = "registered", "other"
OWN_SIDE, OTHER_SIDE = "own", "other"
SYNC_OFFSETS, GROUP_FILTERS = "consumer.offset.sync.enable", "consumer.offset.group.filters"
SYNC_ACLS, ACL_FILTERS = "acl.sync.enable", "acl.filters"
PREFIX = "cluster.link.prefix"
_ALL = {"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}
_ANY_ACL = {
    "resourceFilter": {"resourceType": "any", "patternType": "any"},
    "accessFilter": {"operation": "any", "permissionType": "any"},
}
# Switch -> its two configs, and the document that includes everything, with which it starts.
SWITCHES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "auto_create": (AUTO_CREATE, AUTO_CREATE_FILTERS, json.dumps({"topicFilters": [_ALL]})),
        "sync_offsets": (SYNC_OFFSETS, GROUP_FILTERS, json.dumps({"groupFilters": [_ALL]})),
        "sync_acls": (SYNC_ACLS, ACL_FILTERS, json.dumps({"aclFilters": [_ANY_ACL]})),
    }
)
DOCUMENTS: Mapping[str, str] = MappingProxyType(
    {"auto_create": "topic_filters", "sync_offsets": "group_filters", "sync_acls": "acl_filters"}
)  # switch -> field of its filter document


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftValues:
    """The fields of all steps."""

    direction: str = ""  # key of the direction that the user chose; it decides the texts of the pages
    preset: str = ""
    link_mode: str = "DESTINATION"
    connection_mode: str = "OUTBOUND"
    remote_field: str = "source_cluster_id"  # name of the other cluster in the REST API
    own: str = ""  # cluster id
    other_kind: str = REGISTERED
    other: str = ""  # cluster id of a registered cluster
    other_cluster_id: str = ""  # of a cluster that is not registered; "": it is read from the cluster
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)  # with secrets
    auto_create: bool = False
    topic_filters: str = SWITCHES["auto_create"][2]
    add_prefix: bool = False
    prefix: str = ""
    sync_offsets: bool = False
    group_filters: str = SWITCHES["sync_offsets"][2]
    sync_acls: bool = False
    acl_filters: str = SWITCHES["sync_acls"][2]
    name: str = ""

    @property
    def has_own_connection(self) -> bool:
        """Return whether the link gets connection configs of its own, because the other cluster is not registered."""
        return self.other_kind == OTHER

    @property
    def has_mirrors(self) -> bool:
        """Return whether mirror topics can be added to this link: the source side of a link has none."""
        return self.link_mode != "SOURCE"

    @property
    def remote_id(self) -> str:
        """The id of the other cluster; "" if it is to be read from the cluster."""
        return self.other_cluster_id if self.has_own_connection else self.other

    @property
    def has_other(self) -> bool:
        """Return whether the other cluster was chosen or entered."""
        return bool(self.connection if self.has_own_connection else self.other)

    def connection_configs(self) -> dict[str, str | None]:
        """Return the configs that decide how the link connects, secrets included."""
        mode = {"link.mode": self.link_mode} if self.link_mode != "DESTINATION" else {}
        direction = {"connection.mode": self.connection_mode} if self.connection_mode != "OUTBOUND" else {}
        return {**(self.connection if self.has_own_connection else {}), **mode, **direction}

    def configs(self) -> dict[str, str | None]:
        """Return all configs of the link, secrets included."""
        if not self.has_mirrors:
            return self.connection_configs()
        prefix = {PREFIX: self.prefix} if self.add_prefix and self.prefix else {}
        switched: dict[str, str | None] = {}
        for switch, (enable, filters, _) in SWITCHES.items():
            if getattr(self, switch):
                switched |= {enable: "true", filters: getattr(self, DOCUMENTS[switch])}
        return {**self.connection_configs(), **prefix, **switched}

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON, secrets included."""
        return asdict(self) | {"connection": dict(self.connection)}


def values_of(draft: LinkDraft) -> DraftValues:
    """Return the values of a draft; the defaults if no key decrypts them, so that they can be entered again."""
    stored = readable(draft.values)
    known = {each.name for each in fields(DraftValues)}
    return DraftValues(**{name: value for name, value in stored.items() if name in known})  # type: ignore[arg-type]


def kept_secrets(
    before: Mapping[str, str], after: Mapping[str, str], *, entered: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Return (secret, config) for each stored secret that the new connection would send elsewhere without being entered again.

    A secret config that differs counts as entered only if it is in ``entered``: another user name changes
    ``sasl.jaas.config``, but the password in it is the stored one.
    """
    changes: dict[str, str | None] = {
        name: after.get(name) for name in {*before, *after} if name not in SECRETS and before.get(name) != after.get(name)
    }
    changes |= {name: after.get(name) for name in SECRETS if name in entered or name not in after}
    return secrets_to_repeat(before, changes)
