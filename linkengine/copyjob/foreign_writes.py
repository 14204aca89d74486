"""Detects foreign writes: reads batches of a mirror that its copy did not expect, and creates the errors to report.

A batch is the mirror's own if it has the mirror's producer id. Blocking; runs in a background thread, on a connection of its
own. Reads uncommitted data up to the high watermark.
"""

from __future__ import annotations

import time
from collections.abc import Container, Generator
from contextlib import closing

from linkengine.batches.view import BatchView, check_crc, iter_batches
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import LATEST, TopicPartition, list_offsets
from linkengine.kafka.protocol import BrokerError, KafkaCode, UnreplicatedError
from linkengine.kafka.single_reads import read_batches
from linkengine.kafka.topicviews import Leader

PATIENCE_S = 10.0  # to read what may be the data of several Produce requests


def first_foreign_batch(
    cluster: Cluster, leader: Leader, *, topic: tuple[str, bytes, int], offsets: tuple[int, int], own_ids: Container[int]
) -> int | None:
    """Return the offset of the first batch in ``offsets`` by a producer whose id is not in ``own_ids``, or None."""
    with closing(batches_in(cluster, leader, topic=topic, offsets=offsets)) as batches:
        for view, batch in batches:
            if view.producer_id not in own_ids:
                check_crc(view, batch)  # the producer id may have been damaged in transit
                return view.base_offset
    return None


def batches_in(
    cluster: Cluster, leader: Leader, *, topic: tuple[str, bytes, int], offsets: tuple[int, int | None]
) -> Generator[tuple[BatchView, memoryview]]:
    """Yield the batches in ``offsets``, all of them replicated; raise if they cannot be read within PATIENCE_S.

    The end None means the high watermark. Close the generator: it holds a connection.
    """
    position, wanted = offsets
    end = _replicated_end(cluster, leader, topic=(topic[0], topic[2]), wanted=wanted)
    deadline = time.monotonic() + PATIENCE_S
    connection = cluster.open(leader.broker)
    try:
        while position < end:
            error, records = read_batches(connection, topic=topic, leader_epoch=leader.epoch, offset=position)
            if error:
                raise BrokerError(error, f"Mirror {topic[0]}-{topic[2]} cannot be read for a check")
            for at, view in iter_batches(records):
                if view.next_offset > position and view.base_offset < end:
                    yield view, records[at : at + view.size]
                position = max(position, view.next_offset)
            if time.monotonic() > deadline:
                raise LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR, f"Mirror {topic[0]}-{topic[2]} could not be checked in time. Retrying."
                )
    finally:
        connection.close()


def _replicated_end(cluster: Cluster, leader: Leader, *, topic: TopicPartition, wanted: int | None) -> int:
    """Return the end of the readable offsets; raise if followers have not replicated up to ``wanted``."""
    error, high_watermark = list_offsets(cluster, leader.broker, [topic], timestamp=LATEST)[topic]
    if error:
        raise BrokerError(error, f"Mirror {topic[0]}-{topic[1]} cannot be read for a check")
    if wanted is not None and high_watermark < wanted:
        raise UnreplicatedError(*topic)
    return high_watermark if wanted is None else wanted


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
