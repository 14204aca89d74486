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
    while missing := {one.topic for one in topics} - _shown(admin):
        assert time.monotonic() < deadline, f"not shown within {TIMEOUT_S:.0f} s: {missing}"
        time.sleep(0.02)


def _shown(admin: AdminClient) -> set[str]:
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    return {name for name, one in found.items() if one.error is None and _led(one)}


def _led(topic: TopicMetadata) -> bool:
    return all(one.leader >= 0 for one in topic.partitions.values())
