"""The values that cross the engine's front door: what to copy, how far it is, what came of it.

They travel as JSON into Spark tasks (``plantexts``) and through Redis, so they hold plain values only. A thing asked for is
another type than a thing observed. Times are Unix milliseconds, offsets are Kafka offsets, ends are exclusive.
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
    TRANSACTIONS = "transactions"  # empty transactions, one offset each: where markers are refused


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTuning:
    """Knobs of the copy loop; the defaults are the measured ones of ``docs/benchmarks.md``."""

    lease_ttl_ms: int = 4_000  # after a dead owner: how long until the next one may write
    progress_ms: int = 500  # how often a partition is reported
    fetch_max_bytes: int = 8 << 20  # one Fetch response, from a source far away; a near one is asked for less
    fetch_partition_max_bytes: int = 8 << 20
    fetch_wait_ms: int = 500
    produce_in_flight: int = 5  # Kafka keeps the last five batches per producer id
    coalesce_bytes: int = 1 << 20  # small neighbouring batches grow to this
    request_timeout_ms: int = 30_000
    bytes_per_s: int = 0  # of the whole link, all its workers together; 0: no limit


def topic_ids_of(source_topic_id: str, mirror_topic_id: str) -> str:
    """Name the topics that a mirror joins by their ids: others once it was restored, reversed or moved."""
    return f"{source_topic_id} {mirror_topic_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssignment:
    """One partition of one mirror topic, as the copier needs it."""

    mirror_id: str
    partition: int
    source_topic: str
    mirror_topic: str
    source_topic_id: str  # Kafka Uuid as text; a topic created again under the same name has another
    producer_id: int  # chosen by us, one per mirror partition (``producer_id_for``)
    follows_start: bool = True  # False: the mirror has a retention and a log start of its own
    transactional_id: str = ""  # gaps are filled by its empty transactions, and its producer id is used; "": by WriteTxnMarkers
    mirror_topic_id: str = ""  # as it was created; "": not known (yet)
    source_seen: tuple[int, int] | None = None  # leader epoch of the source, and an offset below which all was read by then
    since_ms: int = 0  # since when its mirror is in the state in which this was planned; comes back in reports

    @property
    def key(self) -> str:
        """Name of the partition in leases, control records and progress: ``<mirror id>/<partition>``."""
        return f"{self.mirror_id}/{self.partition}"

    @property
    def topic_ids(self) -> str:
        """``topic_ids_of`` the topics it was planned for."""
        return topic_ids_of(self.source_topic_id, self.mirror_topic_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What one copy worker copies of one link."""

    link_id: str
    revision: int  # of the link's settings: a higher one means other connections, or other limits
    source: ClusterAddress
    destination: ClusterAddress
    assignments: tuple[PartitionAssignment, ...] = ()
    workers: int = 1  # that have partitions of the link, this one included
    tuning: CopyTuning = CopyTuning()
    signing_keys: tuple[str, ...] = field(default=(), repr=False)  # hexadecimal, newest first: of reports and losses
    request_id: str = ""  # of the HTTP request or the round that told it; on the worker's log lines

    @property
    def signer(self) -> Signer:
        """Signs reports and losses; without keys it cannot."""
        return Signer.of_texts(self.signing_keys)


class PartitionPhase(StrEnum):
    """What a copy task is doing with a partition at this moment."""

    WAITING = "WAITING"  # for the lease, or for the first sign that copying works
    COPYING = "COPYING"
    SOURCE_UNREACHABLE = "SOURCE_UNREACHABLE"  # retrying
    DESTINATION_UNREACHABLE = "DESTINATION_UNREACHABLE"  # retrying
    LINK_BROKEN = "LINK_BROKEN"  # the source refuses our credentials or rights; retrying slowly
    FAILED = "FAILED"  # permanent, see the error code
    RELEASED = "RELEASED"  # ordered to stop, or fenced: nothing in flight, lease given back


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """Latest observation of one partition, by the worker that has it. Unknown is None, never 0."""

    key: str
    hold_id: str  # names the worker, and which of its holds on this partition
    phase: PartitionPhase
    observed_at_ms: int
    generation: int = 0  # of the lease under which this was seen; 0: without one
    source_start: int | None = None  # the source's log start offset
    source_end: int | None = None  # the source's last stable offset: the mirror's goal
    source_high_watermark: int | None = None  # seen along with it; what lies between waits behind an open transaction
    source_seen_at_ms: int | None = None  # when its leader told these two, or that nothing had changed
    mirror_start: int | None = None
    mirror_end: int | None = None  # log end offset: the checkpoint; all below is the source's
    unproven_end: int | None = None  # instead of it, while the last records are still to be compared with the source
    set_back_to: int | None = None  # lowest end that it fell back to in this hold: what lay beyond was lost
    set_backs: int = 0  # how often
    source_kept: int | None = None  # the source was cut short or replaced: it is what was copied up to here only
    last_fetch_offset: int | None = None  # highest source offset fetched
    source_epoch: int | None = None  # of the leader that is read; all below mirror_end was read under it or earlier ones
    last_timestamp_ms: int | None = None  # max timestamp of the last batch written
    caught_up_at_ms: int | None = None  # the mirror holds all that was below the high watermark then: age of the lag
    bytes_copied: int = 0  # in this hold, as stored
    records_copied: int = 0  # likewise; offsets with a record, fillers not counted
    bytes_per_s: float | None = None  # smoothed over about a second; None before the second report
    records_per_s: float | None = None
    error_code: str = ""
    error_message: str = ""
    failed_at_ms: int | None = None  # the last try to read the source that failed, while none has succeeded
    gaps: tuple[Gap, ...] = ()  # runs of fills in this hold; they only grow
    topic_ids: str = ""  # ``PartitionAssignment.topic_ids`` of what was seen; "": not told, by an older version
    since_ms: int = 0  # ``PartitionAssignment.since_ms`` of what was seen

    @property
    def seen_end(self) -> int | None:
        """Where the mirror ends, be it compared with the source or not."""
        return self.unproven_end if self.mirror_end is None else self.mirror_end


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProbe:
    """What one look at a cluster told."""

    cluster_id: str
    brokers: int
    kafka_version: str  # "" where the broker does not tell
    authorizer: bool  # ACLs can be set: mirrors can be made read-only
    gap_filler: GapFiller | None = None  # of the destination; only where a link is checked
    distances: tuple[BrokerDistance, ...] | None = None  # None where they were not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic as a cluster describes it; ``configs`` holds what was set on the topic itself, not defaults."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    internal: bool
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """What a partition holds now: ``end`` is the log end, ``stable_end`` the last stable offset."""

    partition: int
    start: int
    end: int
    stable_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """Compare a mirror with its source: every record within ``[starts, ends)``, both known at the start."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    ends: tuple[tuple[int, int], ...] = ()  # (partition, offset to compare up to); empty: the mirror's end now
    starts: tuple[tuple[int, int], ...] = ()  # (partition, first offset to compare); 0 where it is not named
    compacted: bool = False  # either side compacts: an offset may be missing where ADR 0002 explains it
    timeout_s: float = 6 * 3600.0  # of each look; a terabyte takes about three hours
    gentle: bool = False  # one Spark task per topic, however many partitions: the copy needs the machine more


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What the witness saw."""

    records_compared: int
    differences: int
    first_differences: tuple[RecordDifference, ...]
    bytes_compared: int
    duration_ms: int
    partitions: tuple[tuple[int, int, int], ...] = ()  # (partition, first offset, end offset) compared
    checked: tuple[CheckedRange, ...] = ()  # the same offsets, cut where records differ; neighbours merged
    not_copied: int | None = None  # offsets that the source held at the beginning and the mirror had not; None: not looked at


def producer_id_for(link_number: int, mirror_number: int, partition: int) -> int:
    """Derive the producer id of a mirror partition: 2^62 + link (16 bits) + mirror (24 bits) + partition (22 bits).

    Distinct for all links below 65,536, mirrors below 16,777,216 and partitions below 4,194,304; raises ValueError beyond.
    """
    if not (0 <= link_number < 1 << 16 and 0 <= mirror_number < 1 << 24 and 0 <= partition < 1 << 22):
        raise ValueError(f"no producer id for link {link_number}, mirror {mirror_number}, partition {partition}")
    return PRODUCER_ID_BASE | link_number << 46 | mirror_number << 22 | partition
