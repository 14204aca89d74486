"""Finds the leader of a mirror partition in the brokers' metadata, or establishes that the topic is gone. No I/O.

A missing topic fails the mirror permanently, so every broker has to confirm it: a broker that is cut off from the others, or
that has just started, does not know topics that exist.
"""

from __future__ import annotations

from linkengine.copyjob.foreign import check_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.topicviews import Leader, Survey, locate


def locate_mirror(assignment: PartitionAssignment, survey: Survey) -> tuple[Leader, bytes]:
    """Return leader and topic id; raise BrokerError as ``locate`` does, for a missing topic only if all brokers agree."""
    try:
        found = locate(survey.topics, assignment.mirror_topic, assignment.partition)
        check_mirror(assignment, survey.topics[assignment.mirror_topic].topic_id_text)
    except BrokerError as error:
        if error.kafka_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION and not _all_agree(assignment, survey):
            raise _brokers_disagree(assignment) from error
        raise
    return found


def _all_agree(assignment: PartitionAssignment, survey: Survey) -> bool:
    if not survey.everywhere:
        return False
    return assignment.mirror_topic_id not in survey.topic_ids.get(assignment.mirror_topic, ())


def _brokers_disagree(assignment: PartitionAssignment) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Destination brokers disagree about mirror topic {assignment.mirror_topic!r}: some do not know it, or know another "
        "topic of that name; others know it, or do not respond. Retrying automatically. If this persists, restart the broker "
        "that has lost contact with the others.",
    )
