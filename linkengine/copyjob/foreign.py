"""Looks at the batches of a mirror that its copier did not send knowingly: are they ours, by producer id, or somebody else's?

Blocking; runs beside the loop, on a connection of its own. Reads uncommitted data up to the high watermark.
"""

from __future__ import annotations

import time
from collections.abc import Container, Generator
from contextlib import closing

from linkengine.batches.view import BatchView, check_crc, iter_batches
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode, UnreplicatedError
from linkengine.kafka.offsets import LATEST, TopicPartition, list_offsets
from linkengine.kafka.reading import read_batches
from linkengine.kafka.topicviews import Leader

PATIENCE_S = 10.0  # for reading what may be some requests of ours


def first_foreign_batch(
    cluster: Cluster, leader: Leader, *, topic: tuple[str, bytes, int], offsets: tuple[int, int], ours: Container[int]
) -> int | None:
    """Answer the offset of the first batch in ``offsets`` that none of our producer ids wrote, None where all are ours."""
    with closing(batches_in(cluster, leader, topic=topic, offsets=offsets)) as batches:
        for view, batch in batches:
            if view.producer_id not in ours:
                check_crc(view, batch)  # the producer id may have been changed on its way
                return view.base_offset
    return None


def batches_in(
    cluster: Cluster, leader: Leader, *, topic: tuple[str, bytes, int], offsets: tuple[int, int | None]
) -> Generator[tuple[BatchView, memoryview]]:
    """Yield what stands in ``offsets``, all of it replicated; raise where that cannot be read, or not within PATIENCE_S.

    Up to None is as far as it is replicated. Close it: it holds a connection.
    """
    position, wanted = offsets
    end = _replicated_end(cluster, leader, topic=(topic[0], topic[2]), wanted=wanted)
    deadline = time.monotonic() + PATIENCE_S
    connection = cluster.open(leader.broker)
    try:
        while position < end:
            error, records = read_batches(connection, topic=topic, leader_epoch=leader.epoch, offset=position)
            if error:
                raise BrokerError(error, f"The mirror {topic[0]}-{topic[2]} cannot be read for a check")
            for at, view in iter_batches(records):
                if view.next_offset > position and view.base_offset < end:
                    yield view, records[at : at + view.size]
                position = max(position, view.next_offset)
            if time.monotonic() > deadline:
                raise LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR, f"The mirror {topic[0]}-{topic[2]} could not be checked in time. Retrying."
                )
    finally:
        connection.close()


def _replicated_end(cluster: Cluster, leader: Leader, *, topic: TopicPartition, wanted: int | None) -> int:
    """Nobody can read beyond the high watermark; followers that are down shall not hold up everybody else's look."""
    error, high_watermark = list_offsets(cluster, leader.broker, [topic], timestamp=LATEST)[topic]
    if error:
        raise BrokerError(error, f"The mirror {topic[0]}-{topic[1]} cannot be read for a check")
    if wanted is not None and high_watermark < wanted:
        raise UnreplicatedError(*topic)
    return high_watermark if wanted is None else wanted


def foreign_write(assignment: PartitionAssignment, offset: int) -> LinkEngineError:
    """Answer the error of a mirror that somebody else wrote to, with the way out."""
    return LinkEngineError(
        ErrorCode.FOREIGN_WRITE,
        f"Somebody else wrote to mirror topic {assignment.mirror_topic!r}, partition {assignment.partition}, offset {offset}. "
        "Offsets no longer match the source, so copying stopped. Deny WRITE on the topic to others, then delete the mirror "
        "topic and create it again, or fail over to keep it as it is.",
    )


def check_mirror(assignment: PartitionAssignment, found: str) -> None:
    """Raise where the topic of that name has another id than the mirror was created with.

    As an unknown topic, which is missing for good only after several looks: a broker's metadata may be late.
    """
    if assignment.mirror_topic_id and found and found != assignment.mirror_topic_id:
        raise another_topic(assignment)


def another_topic(assignment: PartitionAssignment) -> LinkEngineError:
    """Return the error of a topic of the mirror's name that is not the mirror."""
    return BrokerError(
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"Mirror topic {assignment.mirror_topic!r} was deleted and created again by somebody else",
    )


def overtaken(assignment: PartitionAssignment, offset: int) -> LinkEngineError:
    """Answer why an attempt ends that did not find its own at ``offset``; who was there is told by the next look."""
    where = f"{assignment.mirror_topic}-{assignment.partition}"
    return BrokerError(
        KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"At offset {offset} of mirror {where} stands something else than we sent"
    )


def marker_overrun(assignment: PartitionAssignment, offset: int) -> LinkEngineError:
    """Answer the error of a mirror in which a fill of our own stands where it must not, with the way out."""
    return LinkEngineError(
        ErrorCode.MARKER_OVERRUN,
        f"In mirror topic {assignment.mirror_topic!r}, partition {assignment.partition}, a gap fill stands at offset {offset}, "
        "where the source has a record or nothing yet. A copier that stood still for longer than its lease wrote it late. "
        "Offsets from there on would no longer match the source, so copying stopped. Delete the mirror topic and create it "
        "again, or fail over to keep it as it is.",
    )


def replaced_records(assignment: PartitionAssignment, offset: int, *, kept: int) -> LinkEngineError:
    """Answer the error of a mirror whose last records are not the source's any more; those before ``kept`` are."""
    return TruncationError(
        f"Source {assignment.source_topic}-{assignment.partition} has another record at offset {offset} than its mirror, which "
        "was copied from it. An unclean leader election at the source has dropped acknowledged records, and others took their "
        "offsets. Fail over to keep the mirror's records, or create the mirror again.",
        kept=kept,
    )
