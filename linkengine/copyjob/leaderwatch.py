"""Finds source leaders that were replaced without learning of it, so that the lag is never shown too small.

A broker that is cut off from its controllers keeps serving: what it has, with log ends that no longer move. Its mirrors
look in sync while producers write to its successor. The other brokers no longer list it as alive. So each broker is asked
for its list every few seconds, with a small request, and for the leaders of topics only if a broker that is read from is
missing. Runs in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf

from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Origin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicviews import TopicView

EVERY_S = 5.0
Read = Mapping[MirrorPartition, Origin]


class LeaderWatch:
    """A periodic check of which brokers the other source brokers list as alive."""

    def __init__(self, services: Services, cluster: Cluster, *, succeeded: Callable[[MirrorPartition], None]) -> None:
        self._services, self._cluster, self._succeeded = services, cluster, succeeded
        self._due_at = 0.0

    def tick(self, now: float, groups: Mapping[tuple[int, int], Collection[MirrorPartition]]) -> None:
        """Start a check if it is time; a group is (broker, turn), as for ``SourceWatch``."""
        if now < self._due_at:
            return
        self._due_at = inf  # until this check has finished
        read = {
            partition: partition.origin
            for partitions in groups.values()
            for partition in partitions
            if partition.origin is not None
        }
        self._services.background.submit(
            lambda: _successions(self._cluster, read),
            done=lambda views: self._on_views(read, views),
            failed=lambda _: self._on_views(read, {}),
        )

    def _on_views(self, read: Read, views: Mapping[str, TopicView]) -> None:
        self._due_at = self._services.clock.monotonic() + EVERY_S
        for partition, origin in read.items():
            if partition.origin is origin and _has_successor(partition, origin, views):
                self._succeeded(partition)


def _successions(cluster: Cluster, read: Read) -> Mapping[str, TopicView]:
    """Return the newest view of topics that are read from brokers which another broker no longer lists as alive."""
    given_up = cluster.survey().given_up if read else set()
    topics = {partition.assignment.source_topic for partition, origin in read.items() if origin.leader.broker in given_up}
    return cluster.newest_topics(topics) if topics else {}


def _has_successor(partition: MirrorPartition, origin: Origin, views: Mapping[str, TopicView]) -> bool:
    view = views.get(partition.assignment.source_topic)
    leader = view.partitions.get(partition.assignment.partition) if view is not None else None
    return leader is not None and leader.epoch > origin.leader.epoch
