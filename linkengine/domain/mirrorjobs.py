"""Parameters and results of the engine's jobs on a mirror topic besides copying: set-up, sync, stop, reversal.

Plain values as in ``plans``: times are Unix milliseconds, offsets are Kafka offsets, ends are exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import LocalEdit
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groupplans import ClampedOffset, KnownOffset
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.states import StopReason

FILLERS = "fillers"  # name of a RefusedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSetup:
    """A mirror topic to be created, seeded and made read-only."""

    link_id: str
    mirror_id: str
    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    replication_factor: int | None = None  # None: the destination's default
    configs: dict[str, str] = field(default_factory=dict)  # overrides of unsynced configs
    sync_include: tuple[str, ...] | None = None  # topic.config.sync.include; None: the default list
    guard: bool = True  # deny writes; False if that would also deny them to the link's own principal
    start: str = "earliest"  # mirror.start.offset.spec, see ``startspec``
    contested: bool = False  # another mirror has this name too: ACLs on it may belong to that mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorCreated:
    """Result of a set-up."""

    source_topic_id: str
    mirror_topic_id: str
    partitions: int
    read_only: bool  # False: the destination has no authorizer
    seeded: tuple[tuple[int, int], ...] = ()  # (partition, offset the mirror starts at) where that is above 0
    source_configs: dict[str, str] = field(default_factory=dict)  # effective values of the synced configs; keep for the stop


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSync:
    """A mirror whose partitions and configs are to follow its source topic."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    source_topic_id: str
    mirror_topic: str
    mirror_topic_id: str = ""  # "": unknown; a topic of this name with another id is not the mirror
    sync_include: tuple[str, ...] | None = None  # topic.config.sync.include; None: the default list
    previous: dict[str, str] = field(default_factory=dict)  # source configs of the last run; empty: there was none
    configs: dict[str, str] = field(default_factory=dict)  # overrides, as in MirrorSetup
    keyless: bool = False  # the mirror is compacted and has refused a record without a key
    guard: bool = True  # as in MirrorSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedStep:
    """Something that the destination refused: a config while mirroring, or a step after writes were allowed.

    ``name`` is a topic config, or FILLERS for the records at the head that could not be removed.
    """

    name: str
    value: str | None  # value that the config should have; None: the cluster's default
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSynced:
    """Result of a sync run."""

    partitions: int  # of the mirror, after growth: new ones need assignments
    source_partitions: int  # more if the mirror did not grow
    ungrown: LinkEngineError | None = None  # why it did not grow
    source_configs: dict[str, str]  # effective values of the synced configs; keep for the stop
    read: bool = True  # False: ``source_configs`` are the previous ones; the mirror was being changed to an ordinary topic
    refused: tuple[RefusedStep, ...] = ()  # configs that the destination refused
    changed: tuple[str, ...] = ()  # names of the configs that were set or deleted on the mirror
    reverted: tuple[LocalEdit, ...] = ()  # those that a user had changed on the mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStop:
    """A mirror to be fenced and made writable."""

    source: ClusterAddress
    destination: ClusterAddress
    assignments: tuple[PartitionAssignment, ...]
    reason: StopReason
    generation: int  # of the owner that fences; higher than that of every copy worker
    source_topic: str = ""  # both names: needed if there are no assignments yet
    mirror_topic: str = ""
    mirror_topic_id: str = ""  # as noted when the mirror was created; "": its set-up did not get that far
    contested: bool = False  # as in MirrorSetup
    was_mirror: bool = True  # False: an ordinary topic was to become a mirror; only its configs show how far that went
    failed: bool = False  # it was FAILED when it was stopped, perhaps because its log contains an earlier stop's fence
    seeding: bool = False  # its set-up was interrupted: the topic may hold part of a head, hidden, and nothing else
    fenced_ends: tuple[tuple[int, int], ...] = ()  # (partition, offset of the fence) recorded by an earlier attempt
    giving_back: bool = False  # an earlier attempt has begun to restore the source's configs, perhaps not all of them
    copied: tuple[tuple[int, int], ...] = ()  # (partition, offset) below which all is the source's: as reported, or recorded
    left: tuple[tuple[int, int], ...] = ()  # (partition, end) where the last copy worker ended in an orderly way
    source_configs: dict[str, str] = field(default_factory=dict)  # last known; used if the source does not respond
    configs: dict[str, str] = field(default_factory=dict)  # overrides, as in MirrorSetup
    sync_include: tuple[str, ...] | None = None
    guard: bool = True  # writes were denied and have to be allowed again, as in MirrorSetup
    was_closed: bool = False  # the same may be true without ``guard``: an ordinary topic that was to become a mirror
    group_offsets: tuple[KnownOffset, ...] = ()  # of the synced consumer groups


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStopped:
    """Where the mirror ended: the offset of the fence of each partition. Everything below was mirrored except ``foreign``."""

    ends: tuple[tuple[int, int], ...]
    foreign: tuple[tuple[int, int], ...] = ()  # (partition, first offset below the fence that was not mirrored), if any
    epochs: tuple[tuple[int, int], ...] = ()  # (partition, leader epoch in which the fence was found), of this attempt's fences
    clamped: tuple[ClampedOffset, ...] = ()  # offsets of groups that the end limits; known after the fence only
    gives_back: bool = field(default=True, compare=False)  # False: stopped before; its configs and groups stay as they are
    refused: tuple[RefusedStep, ...] = ()  # known last: the topic is writable already


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTurn:
    """A stopped topic that is to become the mirror of its former mirror, with the records that it has."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    source_topic_id: str  # both ids: a name alone does not identify a topic that was deleted and created again
    mirror_topic_id: str
    assignments: tuple[PartitionAssignment, ...]
    ends: tuple[tuple[int, int], ...]  # (partition, offset at which the other side was fenced)
    begins: tuple[tuple[int, int], ...] = ()  # (partition, first offset the other side ever had) if it lacks older ones
    generation: int
    sync_include: tuple[str, ...] | None = None
