"""Whether a mirror has reached a point its source has passed. Costs two requests, and a short wait where it is close."""

from __future__ import annotations

import time

from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin, OffsetKind

WAIT_S = 0.5  # a copy lags by milliseconds, and by as much as a transaction lasts
POLL_S = 0.1
CLOSE = 100_000  # offsets; whoever is further behind does not get there in that time


def holds_all(source: ClusterAdmin, destination: ClusterAdmin, *, topic: TopicDescription, mirror: TopicDescription) -> bool:
    """Tell whether the mirror holds everything the source had when this was called; False also where either cannot tell."""
    ends = source.offsets(topic.name, OffsetKind.END, partitions=topic.partitions)
    deadline = time.monotonic() + WAIT_S
    while len(ends) == topic.partitions:
        mirrored = destination.offsets(mirror.name, OffsetKind.END, partitions=topic.partitions)
        behind = sum(max(0, end - mirrored.get(partition, 0)) for partition, end in ends.items())
        if not behind:
            return True
        if behind > CLOSE or time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return False
