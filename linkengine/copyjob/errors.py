"""Errors that the copy job reports, with what to do: unreadable or refused batches, and foreign writes to a mirror.

Only builds the errors; the sides of the link and ``resume`` decide how to react. Most permanent errors have to be
confirmed by a repeated observation (``Confirmation``): a single response of a cluster that is restarting may be wrong. No I/O.
"""

from __future__ import annotations

from linkengine.batches.steps import Append
from linkengine.copyjob.partition_state import PartitionState
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka import requests
from linkengine.kafka.protocol import BATCH_ERRORS, TOO_LARGE, BrokerError, KafkaCode

SUSPICIOUS_BYTES = 1 << 20  # smaller batches fit the request limit of every broker
SUSPICIOUS_LOSSES = 3  # consecutive lost connections with the same batch in flight


class SingleTooLargeError(BrokerError):
    """A single record is larger than the mirror topic allows, so merging fewer batches does not help."""


def refusal(partition: PartitionState, step: Append, response: requests.ProducedPartition) -> LinkEngineError:
    """Return the error of a batch that the destination refuses."""
    where = f"Mirror {_mirror(partition)} does not accept "
    where += _described(step) if response.error in BATCH_ERRORS else "a batch"
    kind = SingleTooLargeError if response.error in TOO_LARGE and step.records == 1 else BrokerError
    return kind(response.error, f"{where} ({response.message})" if response.message else where)


def repeated(partition: PartitionState, step: Append) -> LinkEngineError:
    """Return the error of a batch whose response has the offset of an earlier batch with the same sequences."""
    return LinkEngineError(
        ErrorCode.INTERNAL_ERROR,
        f"Mirror {_mirror(partition)} took the batch at offset {step.base_offset} for a duplicate. Reading its log end again.",
    )


def replaced_times(partition: PartitionState, step: Append, response: requests.ProducedPartition) -> LinkEngineError | None:
    """Return the error of a batch whose timestamps the broker replaced (LogAppendTime).

    None if the response has the batch's own maximum timestamp, as the response to a duplicate has.
    """
    if response.log_append_time == step.max_timestamp:
        return None
    return LinkEngineError(
        ErrorCode.TIMESTAMPS_REPLACED,
        f"message.timestamp.type of mirror topic {partition.assignment.mirror_topic!r} was set to LogAppendTime. Records of "
        f"partition {partition.assignment.partition} from offset {step.base_offset} on have the broker's time instead of their "
        "own, so copying stopped. Set it back to CreateTime and deny ALTER_CONFIGS on the topic to other principals; then "
        "delete the mirror topic and create it again, or fail over to keep it as it is.",
    )


def silence() -> LinkEngineError:
    """Return the error of a broker that does not respond to a Produce request."""
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        "A destination broker does not respond to a Produce request. It may be frozen, or its followers too slow. Waiting.",
    )


def damaged(partition: PartitionState, error: LinkEngineError) -> LinkEngineError:
    """Return the error of damaged or too large source records with the partition and what to do; other errors unchanged."""
    if error.code is ErrorCode.RECORDS_TOO_LARGE:
        return LinkEngineError(
            error.code,
            f"Source {_source(partition)} cannot be copied from offset {partition.position} on: {error.message} The batch must "
            "be rewritten to keep its offsets, which takes all its records in memory. Produce the records again with a current "
            "client in smaller batches, or mirror the topic from a later offset.",
        )
    if error.code is not ErrorCode.CORRUPT_RECORDS:
        return error
    return LinkEngineError(
        error.code,
        f"Source {_source(partition)} has damaged records: {error.message} The disk or the memory of its broker is the likely "
        "cause. Make an undamaged replica the leader (stop that broker, or elect another leader); copying then resumes "
        "automatically. All records before them are mirrored; none behind them are copied.",
    )


class LargestOnItsWay:
    """Finds a batch that repeatedly breaks the connection: a broker closes it without an error if a request is too large."""

    def __init__(self) -> None:
        self._batch: tuple[str, int] | None = None
        self._loss_recorder = 0

    def lost(self, entries: list[tuple[PartitionState, Append]], error: LinkEngineError) -> LinkEngineError:
        """Record a lost connection and the appends in flight; return the error to report."""
        partition, step = max(entries, key=lambda entry: len(entry[1].payload), default=(None, None))
        if partition is None or step is None or len(step.payload) < SUSPICIOUS_BYTES:
            return error
        batch = (partition.key, step.base_offset)
        self._loss_recorder = self._loss_recorder + 1 if batch == self._batch else 1
        self._batch = batch
        return error if self._loss_recorder < SUSPICIOUS_LOSSES else _breaks_connection(partition, step, error)


def _breaks_connection(partition: PartitionState, step: Append, error: LinkEngineError) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MISCONFIGURATION_ERROR,
        f"A destination broker closes the connection each time it is sent {_described(step)} of mirror {_mirror(partition)}. "
        "It gives no reason; most likely its socket.request.max.bytes is smaller. Raise that to more than "
        f"{len(step.payload)} and restart the broker; copying then resumes automatically. ({error.message})",
    )


def _mirror(partition: PartitionState) -> str:
    return f"{partition.assignment.mirror_topic}-{partition.assignment.partition}"


def _source(partition: PartitionState) -> str:
    return f"{partition.assignment.source_topic}-{partition.assignment.partition}"


def _described(step: Append) -> str:
    many = f"{step.records} records" if step.records > 1 else "1 record"
    return f"the batch at offset {step.base_offset} ({many}, {len(step.payload)} bytes)"


class Confirmation:
    """Confirms a key after ``observations`` over at least ``seconds`` without a contradiction in between."""

    __slots__ = ("_observations", "_seconds", "_seen")

    def __init__(self, *, observations: int, seconds: float) -> None:
        self._observations = observations
        self._seconds = seconds
        self._seen: dict[str, tuple[float, int, object]] = {}  # key -> time of the first, count, observed value

    def confirmed(self, key: str, now: float, *, of: object = None) -> bool:
        """Count an observation at monotonic time ``now``; return whether it is confirmed. Another value ``of`` starts again."""
        first, count, before = self._seen.get(key, (now, 0, of))
        if before != of:
            first, count = now, 0
        self._seen[key] = (first, count + 1, of)
        return count + 1 >= self._observations and now - first >= self._seconds

    def clear(self, key: str) -> None:
        """Note a contradicting observation."""
        self._seen.pop(key, None)


# --- foreign writes ------------------------------------------------------------------------------------------------------


def foreign_write(assignment: PartitionAssignment, offset: int) -> LinkEngineError:
    """Return the error of a mirror that another producer wrote to, with the way out."""
    return LinkEngineError(
        ErrorCode.FOREIGN_WRITE,
        f"Another producer wrote to mirror topic {assignment.mirror_topic!r}, partition {assignment.partition}, offset "
        f"{offset}. Offsets no longer match the source, so copying stopped. Deny WRITE on the topic to others, then delete the "
        "mirror topic and create it again, or fail over to keep it as it is.",
    )


def check_mirror_topic_id(assignment: PartitionAssignment, found: str) -> None:
    """Raise if the topic of the mirror's name has another id than the mirror was created with.

    The error is that of an unknown topic, which is permanent only after several readings: a broker's metadata may be out
    of date.
    """
    if assignment.mirror_topic_id and found and found != assignment.mirror_topic_id:
        raise another_topic(assignment)


def another_topic(assignment: PartitionAssignment) -> LinkEngineError:
    """Return the error of a topic that has the mirror's name and is not the mirror."""
    return BrokerError(
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"Mirror topic {assignment.mirror_topic!r} was deleted and created again by another client",
    )


def overtaken(assignment: PartitionAssignment, offset: int) -> LinkEngineError:
    """Return why an attempt ends whose records are not at ``offset``; the next reading finds what is there."""
    where = f"{assignment.mirror_topic}-{assignment.partition}"
    return BrokerError(
        KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Offset {offset} of mirror {where} holds something else than was sent",
    )


def marker_overrun(assignment: PartitionAssignment, offset: int) -> LinkEngineError:
    """Return the error of a mirror in which a filler of its own copy lies at a wrong offset, with the way out."""
    return LinkEngineError(
        ErrorCode.MARKER_OVERRUN,
        f"Mirror topic {assignment.mirror_topic!r}, partition {assignment.partition}, has a gap filler at offset {offset}, "
        "where the source has a record or nothing yet. A copy worker that was suspended for longer than its lease wrote it "
        "late. Offsets from there on would no longer match the source, so copying stopped. Delete the mirror topic and "
        "create it again, or fail over to keep it as it is.",
    )


def replaced_records(assignment: PartitionAssignment, offset: int, *, kept: int) -> LinkEngineError:
    """Return the error of a mirror whose last records the source no longer has; those before ``kept`` it has."""
    return TruncationError(
        f"Source {assignment.source_topic}-{assignment.partition} has another record at offset {offset} than its mirror. An "
        "unclean leader election at the source dropped acknowledged records after they were copied, and other records took "
        "their offsets. Fail over to keep the mirror's records, or create the mirror again.",
        kept=kept,
    )
