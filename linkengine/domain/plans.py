"""Values at the engine's public interface: plans and their JSON form, progress, results, round-trip times.

They are passed as JSON to Spark tasks (``PlanText``) and through Redis, so they contain plain values only. Requests and
observations have different types. Times are Unix milliseconds, offsets are Kafka offsets, ends are exclusive.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.ranges import CheckedRange, Gap, RecordDifference
from linkengine.domain.signatures import Signer

TopicPartition = tuple[str, int]  # name of the topic, number of the partition

# --- round-trip times ----------------------------------------------------------------------------------------------------
# To the brokers of a source, with the throughput that socket buffers allow over them.


LONG_MS = 15.0  # from this round trip on, socket buffers limit one connection, and a backlog is read ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDistance:
    """Round trip and buffers of a broker; None if unknown. Buffers are read only if the round trip is long."""

    broker: int
    address: str
    round_trip_ms: float | None = None
    send_buffer_bytes: int | None = None  # socket.send.buffer.bytes of the broker; -1: the default of its operating system
    receive_buffer_bytes: int | None = None  # of the machine that measured
    error: str = ""

    @property
    def is_long(self) -> bool:
        return self.round_trip_ms is not None and self.round_trip_ms >= LONG_MS

    @property
    def limited_by(self) -> str:
        """Return the setting that limits one connection; "" if the round trip is short or the buffers are unknown.

        A broker with -1 leaves the buffer to its operating system, which grows it as needed; then the receiver's buffer counts.
        """
        send, receive = self.send_buffer_bytes, self.receive_buffer_bytes
        if not self.is_long or send is None:
            return ""
        if send >= 0 and (receive is None or send <= receive):
            return "socket.send.buffer.bytes"
        return "" if receive is None else "net.ipv4.tcp_rmem"

    @property
    def bytes_per_s(self) -> float | None:
        """About how much one connection can carry; None if no known buffer limits it."""
        buffers = {"socket.send.buffer.bytes": self.send_buffer_bytes, "net.ipv4.tcp_rmem": self.receive_buffer_bytes}
        size = buffers.get(self.limited_by)
        return None if size is None or not self.round_trip_ms else size / (self.round_trip_ms / 1000)


# --- plans, progress and results -----------------------------------------------------------------------------------------


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
    copy_run_id: str  # names the time from when this worker started the partition (``copyjob.partition_state``)
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
    set_back_to: int | None = (
        None  # lowest end that the mirror fell back to under this ``copy_run_id``: records beyond were lost
    )
    set_backs: int = 0  # how often it fell back
    source_kept: int | None = None  # the source was truncated or replaced: it matches the mirror only below this offset
    last_fetch_offset: int | None = None  # highest source offset fetched
    source_epoch: int | None = None  # of the source leader; all below mirror_end was read in it or earlier epochs
    last_timestamp_ms: int | None = None  # max timestamp of the last batch written
    caught_up_at_ms: int | None = None  # the mirror has all that was below the high watermark at this time: time lag
    bytes_copied: int = 0  # under this ``copy_run_id``, as stored
    records_copied: int = 0  # the same: offsets with a record, without fillers
    bytes_per_s: float | None = None  # smoothed over about a second; None before the second report
    records_per_s: float | None = None
    error_code: str = ""
    error_message: str = ""
    failed_at_ms: int | None = None  # last failed attempt to read the source, until an attempt succeeds
    gaps: tuple[Gap, ...] = ()  # runs of fills under this ``copy_run_id``; they only grow
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
    request_id: str = ""  # of the HTTP request or task that requested the comparison; for the logs of Spark's Python workers


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


# --- JSON form -----------------------------------------------------------------------------------------------------------
# Copy workers may run another version than the console. A pickled plan would be a list of values by position, so a worker of
# another version would silently confuse fields. As JSON, fields are matched by name: unknown fields are dropped, and missing
# fields have their defaults. ``PLAN_VERSION`` is increased with each field that must not be dropped, because the copy would be
# wrong; a worker refuses plans of a higher version.


PLAN_VERSION = 2  # 2: copy workers sign with the plan's keys; increased with each field that must not be ignored
_BEFORE = "A Spark executor has another version than the worker: "
_BEHIND = (
    ". It copied nothing. Bring the Spark nodes to the worker's version (always upgrade them first); copying then resumes."
)
_REASON = re.compile(f"{re.escape(_BEFORE)}(.*?){re.escape(_BEHIND)}")
# Python's error if the worker's function is missing: an executor from before plan versions, or without this package
_ABSENT = re.compile(r"Can't get attribute '\w+' on <module 'linkengine[\w.]*'|No module named 'linkengine[\w.]*'")
_NOT_COMPARED = ("source_seen",)  # changes while a partition is copied; a new hold gets the value of its time
_REQUEST = "request_id"  # differs in each reconcile pass, and does not change what is copied
T = TypeVar("T")


class PlanText(str):
    """A plan as JSON. It contains credentials, so its repr is hidden."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<a copy plan>"


def write_plan(plan: CopyPlan, *, version: int = PLAN_VERSION) -> PlanText:
    """Return a plan as JSON."""
    return PlanText(json.dumps({"version": version, "plan": asdict(plan)}))


def plan_digest(plan: CopyPlan) -> str:
    """Return a digest that is equal for plans that copy the same."""
    values = asdict(replace(plan, assignments=()))
    del values[_REQUEST]
    names = [field.name for field in fields(PartitionAssignment) if field.name not in _NOT_COMPARED]
    values["assignments"] = [names, list(map(attrgetter(*names), plan.assignments))]  # asdict would deep-copy each, in 0.1 ms
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_plan(text: str) -> CopyPlan:
    """Return the plan that ``write_plan`` of any version wrote; raise LinkEngineError if this version cannot read it safely."""
    found = json.loads(text)
    if found["version"] > PLAN_VERSION:
        raise _other_version(f"it received a copy plan of version {found['version']}, and supports up to {PLAN_VERSION}")
    try:
        return _plan(found["plan"])
    except (KeyError, TypeError) as error:
        raise _other_version(f"it cannot read the copy plan it received ({type(error).__name__})") from None


def other_version(failure: str) -> LinkEngineError | None:
    """Return an error if a failed Spark job's text shows an executor of another version or without the package, else None."""
    reason = _REASON.search(failure)
    if reason:
        return _other_version(reason[1])
    absent = _ABSENT.search(failure)
    return _other_version(absent[0]) if absent else None


def _other_version(reason: str) -> LinkEngineError:
    return LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, f"{_BEFORE}{reason}{_BEHIND}")


def _plan(values: Mapping[str, Any]) -> CopyPlan:
    made = {
        "source": _address(values["source"]),
        "destination": _address(values["destination"]),
        "assignments": tuple(_assignment(assignment) for assignment in values["assignments"]),
        "tuning": _known(CopyTuning, values.get("tuning", {})),
        "signing_keys": tuple(values["signing_keys"]),
    }
    return _known(CopyPlan, {**values, **made})


def _address(values: Mapping[str, Any]) -> ClusterAddress:
    extensions = tuple((name, value) for name, value in values.get("oauth_extensions", ()))
    networks = {name: tuple(values[name]) for name in ("allowed_networks", "denied_networks") if name in values}
    return _known(ClusterAddress, {**values, "oauth_extensions": extensions, **networks})


def _assignment(values: Mapping[str, Any]) -> PartitionAssignment:
    seen = values.get("source_seen")
    return _known(PartitionAssignment, {**values, "source_seen": seen and tuple(seen)})


def _known(kind: type[T], values: Mapping[str, Any]) -> T:
    """Create a value from the known fields; raise TypeError if a field without a default is missing."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # always a dataclass
    return kind(**{name: value for name, value in values.items() if name in names})
