"""Why a batch cannot be read or is not taken, in words that say what to do. Must not know what follows from it."""

from __future__ import annotations

from linkengine.batches.steps import Append
from linkengine.copyjob.partition import MirrorPartition
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import produce
from linkengine.kafka.codes import OF_THE_BATCH, TOO_LARGE, BrokerError

SUSPICIOUS_BYTES = 1 << 20  # smaller requests fit every broker
SUSPICIOUS_LOSSES = 3  # of the connection in a row, with the same batch on its way


class SingleTooLargeError(BrokerError):
    """One record alone is larger than the mirror topic allows: merging less does not help."""


def refusal(partition: MirrorPartition, step: Append, answer: produce.ProducedPartition) -> LinkEngineError:
    """Answer the error of a batch that the destination refuses."""
    where = f"Mirror {partition.assignment.mirror_topic}-{partition.assignment.partition} does not take "
    where += _described(step) if answer.error in OF_THE_BATCH else "a batch"
    kind = SingleTooLargeError if answer.error in TOO_LARGE and step.records == 1 else BrokerError
    return kind(answer.error, f"{where} ({answer.message})" if answer.message else where)


def repeated(partition: MirrorPartition, step: Append) -> LinkEngineError:
    """Answer the error of a batch that was answered with an earlier one's offset."""
    return LinkEngineError(
        ErrorCode.INTERNAL_ERROR,
        f"Mirror {partition.assignment.mirror_topic}-{partition.assignment.partition} has seen the batch at offset {step.base_offset} "
        "before; reading its end again.",
    )


def replaced_times(partition: MirrorPartition, step: Append, answer: produce.ProducedPartition) -> LinkEngineError | None:
    """Answer the error of a batch that was taken and given the broker's own time; None where the answer names the batch's.

    That is how a broker answers a batch that it had taken before.
    """
    if answer.log_append_time == step.max_timestamp:
        return None
    return LinkEngineError(
        ErrorCode.TIMESTAMPS_REPLACED,
        f"Somebody set message.timestamp.type of mirror topic {partition.assignment.mirror_topic!r} to LogAppendTime. The records of "
        f"partition {partition.assignment.partition} from offset {step.base_offset} on have the broker's time instead of their own, "
        "so copying stopped. Set it back to CreateTime and deny ALTER_CONFIGS on the topic to others; then delete the mirror "
        "topic and create it again, or fail over to keep it as it is.",
    )


def silence() -> LinkEngineError:
    """Answer the error of a broker that keeps a Produce waiting."""
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        "A destination broker does not answer a Produce. It may be frozen, or its followers too slow. Waiting.",
    )


def damaged(partition: MirrorPartition, error: LinkEngineError) -> LinkEngineError:
    """Return the error of source records that are damaged or too large, with their place; any other as it is."""
    if error.code is ErrorCode.RECORDS_TOO_LARGE:
        return LinkEngineError(
            error.code,
            f"Source {partition.assignment.source_topic}-{partition.assignment.partition} cannot be copied from offset {partition.position} on: "
            f"{error.message} They must be written anew to keep their offsets, and that takes all of them in memory. Rewrite "
            "them with a current client in smaller batches, or mirror the topic from a later offset.",
        )
    if error.code is not ErrorCode.CORRUPT_RECORDS:
        return error
    return LinkEngineError(
        error.code,
        f"Source {partition.assignment.source_topic}-{partition.assignment.partition} has damaged records: {error.message} "
        "The disk or the memory of its broker is the likely cause. Make a whole replica lead (stop that broker, or elect "
        "another leader); copying then goes on by itself. All before them is mirrored, and nothing is copied past them.",
    )


class LargestOnItsWay:
    """Finds the batch with which a connection breaks again and again: brokers say nothing about a request that is too large."""

    def __init__(self) -> None:
        self._batch: tuple[str, int] | None = None
        self._losses = 0

    def lost(self, entries: list[tuple[MirrorPartition, Append]], error: LinkEngineError) -> LinkEngineError:
        """Take note of a lost connection and what was on its way; answer the error to tell of."""
        partition, step = max(entries, key=lambda entry: len(entry[1].payload), default=(None, None))
        if partition is None or step is None or len(step.payload) < SUSPICIOUS_BYTES:
            return error
        batch = (partition.key, step.base_offset)
        self._losses = self._losses + 1 if batch == self._batch else 1
        self._batch = batch
        return error if self._losses < SUSPICIOUS_LOSSES else _breaks_connection(partition, step, error)


def _breaks_connection(partition: MirrorPartition, step: Append, error: LinkEngineError) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MISCONFIGURATION_ERROR,
        f"A destination broker closes the connection each time it is sent {_described(step)} of mirror "
        f"{partition.assignment.mirror_topic}-{partition.assignment.partition}. It says nothing about why; most likely its "
        f"socket.request.max.bytes is smaller. Raise that to more than {len(step.payload)} and restart the broker; "
        f"copying then goes on by itself. ({error.message})",
    )


def _described(step: Append) -> str:
    many = f"{step.records} records" if step.records > 1 else "1 record"
    return f"the batch at offset {step.base_offset} ({many}, {len(step.payload)} bytes)"
