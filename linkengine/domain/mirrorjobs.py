"""What the engine is asked to do with a mirror topic beside copying into it, and what came of it: one order, one answer.

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
    guard: bool = True  # deny writes; False where the link's principal would shut itself out
    start: str = "earliest"  # mirror.start.offset.spec, see ``startspec``
    contested: bool = False  # another mirror has this name too: the rules on it may be that one's


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorCreated:
    """What setting up a mirror found and made."""

    source_topic_id: str
    mirror_topic_id: str
    partitions: int
    read_only: bool  # False: the destination has no authorizer
    seeded: tuple[tuple[int, int], ...] = ()  # (partition, offset the mirror starts at) where that is above 0
    source_configs: dict[str, str] = field(default_factory=dict)  # effective values of the synced configs; keep for the stop


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSync:
    """A mirror whose partitions and configs shall follow its source topic."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    source_topic_id: str
    mirror_topic: str
    mirror_topic_id: str = ""  # "": not known; a topic of this name with another id is somebody else's
    sync_include: tuple[str, ...] | None = None  # topic.config.sync.include; None: the default list
    previous: dict[str, str] = field(default_factory=dict)  # source configs of the last round; empty: there was none
    configs: dict[str, str] = field(default_factory=dict)  # overrides, as in MirrorSetup
    keyless: bool = False  # the mirror is compacted and has refused a record without a key
    guard: bool = True  # as in MirrorSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedStep:
    """Something the destination did not accept: a config while mirroring, or a step after producers were let in.

    ``name`` is a topic config, or FILLERS for the records at the head that could not be removed.
    """

    name: str
    value: str | None  # what the config should have; None: the cluster's default
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSynced:
    """What one round of synchronisation saw and changed."""

    partitions: int  # of the mirror, after growth: new ones need assignments
    source_partitions: int  # more where the mirror did not grow
    ungrown: LinkEngineError | None = None  # why it did not
    source_configs: dict[str, str]  # effective values of the synced configs; keep for the stop
    read: bool = True  # False: these are the ones that were known, since somebody is making an ordinary topic of the mirror
    refused: tuple[RefusedStep, ...] = ()  # configs that the destination did not accept
    changed: tuple[str, ...] = ()  # names of the configs that were set or deleted on the mirror
    reverted: tuple[LocalEdit, ...] = ()  # those of them that somebody had changed on the mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStop:
    """A mirror to be fenced and made writable."""

    source: ClusterAddress
    destination: ClusterAddress
    assignments: tuple[PartitionAssignment, ...]
    reason: StopReason
    generation: int  # of the owner that fences; above every copier's
    source_topic: str = ""  # both names: needed where there are no assignments yet
    mirror_topic: str = ""
    mirror_topic_id: str = ""  # as noted when the mirror was made; "": its set-up never came so far
    contested: bool = False  # as in MirrorSetup
    was_mirror: bool = True  # False: an ordinary topic was to become one; only its configs tell how far that went
    failed: bool = False  # it had failed when it was stopped, perhaps since its log shows an earlier stop
    seeding: bool = False  # its set-up was cut short: the topic may hold part of a head, hidden, and nothing else
    fenced_ends: tuple[tuple[int, int], ...] = ()  # (partition, offset of the fence) recorded by an earlier attempt
    giving_back: bool = False  # an earlier attempt has begun to give the source's configs back, perhaps not all of them
    copied: tuple[tuple[int, int], ...] = ()  # (partition, offset) below which all is the source's: as reported, or recorded
    left: tuple[tuple[int, int], ...] = ()  # (partition, end) where the copier has let go of the mirror in good order
    source_configs: dict[str, str] = field(default_factory=dict)  # last known; used when the source does not answer
    configs: dict[str, str] = field(default_factory=dict)  # overrides, as in MirrorSetup
    sync_include: tuple[str, ...] | None = None
    guard: bool = True  # writes were denied and have to be allowed again, as in MirrorSetup
    was_closed: bool = False  # perhaps likewise, also unguarded: an ordinary topic that was to become a mirror
    group_offsets: tuple[KnownOffset, ...] = ()  # of the consumer groups that were carried over


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStopped:
    """Where the mirror ended, per partition: the offset of its fence; all below was mirrored but what is ``foreign``."""

    ends: tuple[tuple[int, int], ...]
    foreign: tuple[tuple[int, int], ...] = ()  # (partition, first offset below the fence that was not mirrored), where any is
    epochs: tuple[tuple[int, int], ...] = ()  # (partition, leader epoch under which a fence was seen), of those seen just now
    clamped: tuple[ClampedOffset, ...] = ()  # offsets of groups that the end limits; known after the fence only
    gives_back: bool = field(default=True, compare=False)  # False: stopped before; its configs and groups stay as they are
    refused: tuple[RefusedStep, ...] = ()  # known last: the topic is writable already


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTurn:
    """A topic to become the mirror of its former mirror, where it stands."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    source_topic_id: str  # of the two topics that are meant: names say nothing after one was deleted and created again
    mirror_topic_id: str
    assignments: tuple[PartitionAssignment, ...]
    ends: tuple[tuple[int, int], ...]  # (partition, offset at which the other side was fenced)
    begins: tuple[tuple[int, int], ...] = ()  # (partition, first offset the other side ever had) where it lacks older ones
    generation: int
    sync_include: tuple[str, ...] | None = None
