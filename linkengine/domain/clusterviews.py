"""Views of a cluster for pages and REST: brokers, partitions, configs, ACLs, groups and their lags, and all that a source has.

The values use the words of Kafka's enums. An unknown offset or lag is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Self

from linkengine.domain.acls import Acl
from linkengine.domain.groups import KINDS, Group
from linkengine.domain.mirrorability import ListedTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """A replica of a partition on a broker."""

    broker: int
    leader: bool
    in_sync: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition with its replicas; ``leader`` is None while it has none."""

    partition: int
    leader: int | None
    replicas: tuple[ReplicaDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker and its address for clients."""

    broker: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReplica:
    """A replica that a broker holds."""

    topic: str
    partition: int
    leader: bool
    in_sync: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentDescription:
    """A partition that is being moved to other brokers."""

    topic: str
    partition: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A possible source of a config's value, in order of precedence."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    """The effective config of a topic or broker; the value of a secret is None."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """An ACL, or a filter for ACLs, in which None matches everything."""

    resource_type: str
    resource_name: str | None
    pattern_type: str
    principal: str | None
    host: str | None
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A consumer of a group, and the (topic, partition) pairs assigned to it."""

    consumer_id: str
    client_id: str
    instance_id: str | None
    assigned: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A consumer group. ``error`` says why it cannot be described; its state is then UNKNOWN and its coordinator -1."""

    group_id: str
    state: str
    type: str
    is_simple: bool
    assignor: str
    coordinator: int
    members: tuple[MemberView, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """The consumer groups of a cluster. ``incomplete`` says why some may be missing, "" if none are."""

    groups: tuple[GroupDescription, ...]
    incomplete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagDescription:
    """The lag of a group in a partition; the consumer's fields are empty if no member reads the partition."""

    topic: str
    partition: int
    current_offset: int
    log_end_offset: int | None
    consumer_id: str = ""
    client_id: str = ""
    instance_id: str | None = None

    @property
    def lag(self) -> int | None:
        """Number of records the group has not committed; None while the log end offset is unknown."""
        return None if self.log_end_offset is None else max(0, self.log_end_offset - self.current_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroup:
    """A consumer group with members or committed offsets in a topic; ``error`` says why it is unknown whether it has any.

    ``lag`` is the sum, and ``max_lag`` the largest, over the partitions whose lag is known; None if it is known of none.
    """

    group_id: str
    state: str
    type: str
    members: int | None = None
    known: int = 0  # partitions whose committed offset and log end are known, the offset at or below the log end
    lag: int | None = None
    max_lag: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroups:
    """The consumer groups of a topic. ``incomplete`` says why groups or lags may be missing, "" if none are."""

    partitions: int
    groups: tuple[TopicGroup, ...]
    examined: int
    listed: int  # groups of the cluster; those beyond ``examined`` may read the topic too
    incomplete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOffset:
    """The first record of a partition that is not older than a given time.

    ``offset`` is None if there is none, or if the search is not complete: it then continues at ``searched_to``. Without a
    timestamp it is not the record's, but where a batch begins that is too large to be searched: never a later offset.
    """

    partition: int
    offset: int | None
    record_timestamp_ms: int | None
    searched_to: int
    log_end_offset: int  # the last stable offset
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalWriters:
    """The transactional producers that wrote to a topic and have not expired (a day by default). Copy workers are left out."""

    ids: tuple[str, ...]  # transactional ids
    open_ids: tuple[str, ...]  # those with an open transaction in the topic
    unnamed_open: int  # open transactions whose transactional id is not shown
    complete: bool  # whether no other transactional producer can be hidden from the principal


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversalRisks:
    """Facts of both clusters about a topic before its reversal; None if unreadable."""

    unclean_on: tuple[str, ...] | None = None  # names of the clusters on which unclean leader elections are on
    writers: TransactionalWriters | None = None  # of the source topic

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the value from a task's result."""
        unclean, writers = found["unclean_on"], found["writers"]
        return cls(
            unclean_on=None if unclean is None else tuple(unclean),
            writers=None
            if writers is None
            else TransactionalWriters(**writers | {name: tuple(writers[name]) for name in ("ids", "open_ids")}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """One partition of a group before and after a reset; ``before`` is None if the group had no offset."""

    partition: int
    before: int | None
    after: int
    is_written: bool
    message: str = ""  # why it was refused


# --- what the source of a link that is being created has --------------------------------------------------------------
#
# A list that could not be read is None, never empty, and ``errors`` has the reason. The preview of filters counts matches in
# these lists, so a list that was cut off is named in ``cut``.


MOST_LISTED = 20_000  # of each kind; stored with the draft of the link
MOST_CHARACTERS = 4 << 20  # of the names of each kind: a cluster must not be able to fill the database
TOPICS, GROUPS, ACLS = "topics", "groups", "acls"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceListing:
    """Topics, consumer groups and ACLs as far as they may be listed, each ordered by name."""

    topics: tuple[ListedTopic, ...] | None = None
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
        topics=None if topics is None else tuple(ListedTopic(name=name, internal=i, is_mirror=m) for name, i, m in topics),
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
