"""Creation of topics in tests."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

TIMEOUT_S = 60.0


def create_topics(admin: AdminClient, *topics: NewTopic) -> None:
    """Create topics, and wait until the queried broker shows them: it follows the controller that confirmed them."""
    for made in admin.create_topics(list(topics)).values():
        made.result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while missing := {topic.topic for topic in topics} - _shown(admin):
        assert time.monotonic() < deadline, f"not shown within {TIMEOUT_S:.0f} s: {missing}"
        time.sleep(0.02)


def _shown(admin: AdminClient) -> set[str]:
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    return {name for name, topic in found.items() if topic.error is None and _led(topic)}


def _led(topic: TopicMetadata) -> bool:
    return all(partition.leader >= 0 for partition in topic.partitions.values())
