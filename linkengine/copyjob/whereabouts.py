"""Who leads a mirror partition, or that its topic is gone: a mirror that fails by that does not come back by itself. Pure.

A broker that was cut off before the topic was made does not know it, nor does one that has just begun. Where such a one is
all that answers, nothing is told.
"""

from __future__ import annotations

from linkengine.copyjob.foreign import check_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.topicviews import Leader, Survey, locate


def locate_mirror(assignment: PartitionAssignment, survey: Survey) -> tuple[Leader, bytes]:
    """Answer leader and topic id; raise BrokerError as ``locate`` does, for a missing topic only where every broker says so."""
    try:
        found = locate(survey.topics, assignment.mirror_topic, assignment.partition)
        check_mirror(assignment, survey.topics[assignment.mirror_topic].topic_id_text)
    except BrokerError as error:
        if error.kafka_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION and not _said_by_all(assignment, survey):
            raise _untold(assignment) from error
        raise
    return found


def _said_by_all(assignment: PartitionAssignment, survey: Survey) -> bool:
    if not survey.everywhere:
        return False
    return assignment.mirror_topic_id not in survey.topic_ids.get(assignment.mirror_topic, ())


def _untold(assignment: PartitionAssignment) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Some brokers of the destination do not know mirror topic {assignment.mirror_topic!r}, or know another one of that "
        "name, and others answer differently, or not at all. Retrying. If this stays, restart the broker that has lost touch "
        "with the others.",
    )
