"""Values at the engine's public interface: plans, progress and results.

They are passed as JSON to Spark tasks (``plantexts``) and through Redis, so they contain plain values only. Requests and
observations have different types. Times are Unix milliseconds, offsets are Kafka offsets, ends are exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.coverage import CheckedRange, RecordDifference
from linkengine.domain.distances import BrokerDistance
from linkengine.domain.ranges import Gap
from linkengine.domain.signatures import Signer

TRANSACTIONAL_ID_PREFIX = "clusterlink-"
PRODUCER_ID_BASE = 1 << 62  # brokers allocate from 0 upwards and never reach this


class GapFiller(StrEnum):
    """How offsets without a record are filled at a destination."""

    MARKERS = "markers"  # WriteTxnMarkers: many offsets at once
    TRANSACTIONS = "transactions"  # empty transactions, a single offset each: for destinations that refuse markers


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTuning:
    """Settings of the copy loop; ``docs/benchmarks.md`` is measured with the defaults."""

    lease_ttl_ms: int = 4_000  # time after an owner's crash until the next owner may write
    progress_ms: int = 500  # interval of a partition's reports
    fetch_max_bytes: int = 8 << 20  # per Fetch response of a distant source; lower for a nearby source
    fetch_partition_max_bytes: int = 8 << 20
    fetch_wait_ms: int = 500
    produce_in_flight: int = 5  # Kafka keeps the last five batches per producer id
    coalesce_bytes: int = 1 << 20  # small neighbouring batches are combined up to this size
    request_timeout_ms: int = 30_000
    bytes_per_s: int = 0  # of the link, over all its workers; 0: unlimited


def topic_ids_of(source_topic_id: str, mirror_topic_id: str) -> str:
    """Return the ids of a mirror's topics as text; they change when the mirror is restored, reversed or moved."""
    return f"{source_topic_id} {mirror_topic_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssignment:
    """A partition of a mirror topic, as a copy worker needs it."""

    mirror_id: str
    partition: int
    source_topic: str
    mirror_topic: str
    source_topic_id: str  # Kafka Uuid as text; a recreated topic with the same name has another id
    producer_id: int  # ``producer_id_for`` this mirror partition
    follows_start: bool = True  # False: the mirror has its own retention and log start
    transactional_id: str = ""  # its empty transactions fill gaps, and its producer id is used; "": WriteTxnMarkers
    mirror_topic_id: str = ""  # "": not known (yet)
    source_seen: tuple[int, int] | None = None  # source leader epoch, and the offset below which all was read by then
    since_ms: int = 0  # when the mirror entered the state that this was planned in; returned in reports

    @property
    def key(self) -> str:
        """Return the partition's key in leases, control records and progress: ``<mirror id>/<partition>``."""
        return f"{self.mirror_id}/{self.partition}"

    @property
    def topic_ids(self) -> str:
        """Return ``topic_ids_of`` the topics that it was planned for."""
        return topic_ids_of(self.source_topic_id, self.mirror_topic_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """The partitions of a link that a copy worker copies, and how."""

    link_id: str
    revision: int  # of the link's settings: a higher revision has other connections or limits
    source: ClusterAddress
    destination: ClusterAddress
    assignments: tuple[PartitionAssignment, ...] = ()
    workers: int = 1  # number of workers with partitions of the link, including this worker
    tuning: CopyTuning = CopyTuning()
    signing_keys: tuple[str, ...] = field(default=(), repr=False)  # for reports and losses: hexadecimal, newest first
    request_id: str = ""  # of the HTTP request or task that wrote the plan; for the worker's log

    @property
    def signer(self) -> Signer:
        """Return the signer of reports and losses; without keys, signing raises ValueError."""
        return Signer.of_texts(self.signing_keys)


class PartitionPhase(StrEnum):
    """Phase of a partition in its copy task."""

    WAITING = "WAITING"  # for the lease, or for the first copied record or reached end
    COPYING = "COPYING"
    SOURCE_UNREACHABLE = "SOURCE_UNREACHABLE"  # retrying
    DESTINATION_UNREACHABLE = "DESTINATION_UNREACHABLE"  # retrying
    LINK_BROKEN = "LINK_BROKEN"  # the source refuses the link's credentials or permissions; retrying slowly
    FAILED = "FAILED"  # permanent, see the error code
    RELEASED = "RELEASED"  # ordered to stop, or fenced: nothing in flight, lease released


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """Latest observation of a partition by its copy worker. Unknown is None, never 0."""

    key: str
    hold_id: str  # identifies the worker and its hold on this partition
    phase: PartitionPhase
    observed_at_ms: int
    generation: int = 0  # of the lease under which this was observed; 0: no lease
    source_start: int | None = None  # the source's log start offset
    source_end: int | None = None  # the source's last stable offset: the mirror is copied up to it
    source_high_watermark: int | None = None  # observed with source_end; offsets between wait for an open transaction
    source_seen_at_ms: int | None = None  # when its leader returned these two, or reported no change
    mirror_start: int | None = None
    mirror_end: int | None = None  # log end offset: the checkpoint; everything below was copied from the source
    unproven_end: int | None = None  # log end offset instead of mirror_end while the tail check is pending
    set_back_to: int | None = None  # lowest end that the mirror fell back to in this hold: records beyond were lost
    set_backs: int = 0  # how often it fell back in this hold
    source_kept: int | None = None  # the source was truncated or replaced: it matches the mirror only below this offset
    last_fetch_offset: int | None = None  # highest source offset fetched
    source_epoch: int | None = None  # of the source leader; all below mirror_end was read in it or earlier epochs
    last_timestamp_ms: int | None = None  # max timestamp of the last batch written
    caught_up_at_ms: int | None = None  # the mirror has all that was below the high watermark at this time: time lag
    bytes_copied: int = 0  # in this hold, as stored
    records_copied: int = 0  # in this hold: offsets with a record, without fillers
    bytes_per_s: float | None = None  # smoothed over about a second; None before the second report
    records_per_s: float | None = None
    error_code: str = ""
    error_message: str = ""
    failed_at_ms: int | None = None  # last failed attempt to read the source, until an attempt succeeds
    gaps: tuple[Gap, ...] = ()  # runs of fills in this hold; they only grow
    topic_ids: str = ""  # ``PartitionAssignment.topic_ids`` of the observed assignment; "": from an older version
    since_ms: int = 0  # ``PartitionAssignment.since_ms`` of the observed assignment

    @property
    def seen_end(self) -> int | None:
        """Return the mirror's log end offset, whether or not the tail check is pending."""
        return self.unproven_end if self.mirror_end is None else self.mirror_end


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProbe:
    """Result of a probe of a cluster."""

    cluster_id: str
    brokers: int
    kafka_version: str  # "" if the broker does not report it
    authorizer: bool  # ACLs can be set: mirrors can be made read-only
    gap_filler: GapFiller | None = None  # of the destination; only in the check of a link
    distances: tuple[BrokerDistance, ...] | None = None  # None: not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic as described by its cluster; ``configs`` contains the topic's own configs, not defaults."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    internal: bool
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Current offsets of a partition: ``end`` is the log end offset, ``stable_end`` the last stable offset."""

    partition: int
    start: int
    end: int
    stable_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """A comparison of a mirror with its source: every record in ``[starts, ends)``, both known at the start."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    ends: tuple[tuple[int, int], ...] = ()  # (partition, end offset of the comparison); empty: the mirror's current end
    starts: tuple[tuple[int, int], ...] = ()  # (partition, first offset to compare); 0 for other partitions
    compacted: bool = False  # either side is compacted: offsets may be missing as ADR 0002 explains
    timeout_s: float = 6 * 3600.0  # of each Spark job; a terabyte takes about three hours
    gentle: bool = False  # a single Spark task per topic, to leave the machine to the copy
    request_id: str = ""  # of the HTTP request or task that asked for the comparison; for the logs of Spark's Python workers


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """Result of a comparison of a mirror with its source."""

    records_compared: int
    differences: int
    first_differences: tuple[RecordDifference, ...]
    bytes_compared: int
    duration_ms: int
    partitions: tuple[tuple[int, int, int], ...] = ()  # (partition, first offset, end offset) compared
    checked: tuple[CheckedRange, ...] = ()  # the same offsets, split where records differ; neighbours merged
    not_copied: int | None = None  # source offsets at the start that the mirror lacked; None: not counted


def producer_id_for(link_number: int, mirror_number: int, partition: int) -> int:
    """Derive the producer id of a mirror partition: 2^62 + link (16 bits) + mirror (24 bits) + partition (22 bits).

    Unique for links below 65,536, mirrors below 16,777,216 and partitions below 4,194,304; raises ValueError beyond.
    """
    if not (0 <= link_number < 1 << 16 and 0 <= mirror_number < 1 << 24 and 0 <= partition < 1 << 22):
        raise ValueError(f"no producer id for link {link_number}, mirror {mirror_number}, partition {partition}")
    return PRODUCER_ID_BASE | link_number << 46 | mirror_number << 22 | partition
