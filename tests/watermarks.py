"""Log start and log end of a partition, as a client reads them."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

TIMEOUT_S = 30.0
_NO_LEADER_YET = frozenset(
    {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION}
)


def watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return log start and end; retry while the broker does not know yet that it leads a new partition."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return low, high
