"""What a cluster shows of itself beside mirrors: brokers, partitions, configs, ACLs, consumer groups and their lags.

Values for people and programs that look, in the words of Kafka's own enums. An offset or lag that is not known is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """A copy of a partition on one broker."""

    broker: int
    leader: bool
    in_sync: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition and where it lies; ``leader`` is None while there is none."""

    partition: int
    leader: int | None
    replicas: tuple[ReplicaView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """A broker and where clients find it."""

    broker: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReplica:
    """A copy of a partition that a broker holds."""

    topic: str
    partition: int
    leader: bool
    in_sync: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentView:
    """A partition on its way to other brokers."""

    topic: str
    partition: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """Where a config's value could come from, in order of precedence."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    """A config of a topic or broker as in force; a secret's value is None."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """An ACL, or a filter for some: there, None matches everything."""

    resource_type: str
    resource_name: str | None
    pattern_type: str
    principal: str | None
    host: str | None
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A consumer of a group, and the (topic, partition) pairs it reads."""

    consumer_id: str
    client_id: str
    instance_id: str | None
    assigned: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
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
    """The consumer groups of a cluster. ``incomplete`` says why some may be missing, "" where none are."""

    groups: tuple[GroupView, ...]
    incomplete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagView:
    """How far a group is behind in one partition; the consumer's names are empty where nobody reads it now."""

    topic: str
    partition: int
    current_offset: int
    log_end_offset: int | None
    consumer_id: str = ""
    client_id: str = ""
    instance_id: str | None = None

    @property
    def lag(self) -> int | None:
        """Count the records the group has not committed; None while the end is not known."""
        return None if self.log_end_offset is None else max(0, self.log_end_offset - self.current_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOffset:
    """The first record of a partition that is not older than a moment.

    ``offset`` is None where there is none, and where the search is not complete: it then continues at ``searched_to``.
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
    """What two clusters return on a topic before its reversal; None where it could not be read."""

    unclean_on: tuple[str, ...] | None = None  # names of the clusters on which unclean leader elections are on
    writers: TransactionalWriters | None = None  # of the source topic

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return what a task returned."""
        unclean, writers = found["unclean_on"], found["writers"]
        return cls(
            unclean_on=None if unclean is None else tuple(unclean),
            writers=None
            if writers is None
            else TransactionalWriters(**writers | {name: tuple(writers[name]) for name in ("ids", "open_ids")}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """One partition of a group before and after a reset; ``before`` is None where the group had no offset."""

    partition: int
    before: int | None
    after: int
    is_written: bool
    message: str = ""  # why it was refused
