"""Finds out which source leaders have a successor they have not heard of, so that a lag never looks smaller than it is.

A broker that was cut off from its controllers goes on answering as before: with what it has, and with ends that stand still.
Its mirrors look caught up while producers write to its successor. The other brokers do not name it any more: each is asked
every few seconds, with a small request, and about topics only where somebody is missing. Runs in the background.
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
    """Asks all source brokers about each other."""

    def __init__(self, services: Services, cluster: Cluster, *, succeeded: Callable[[MirrorPartition], None]) -> None:
        self._services, self._cluster, self._succeeded = services, cluster, succeeded
        self._due = 0.0

    def tick(self, now: float, groups: Mapping[tuple[int, int], Collection[MirrorPartition]]) -> None:
        """Ask if it is time; a group is (broker, turn), as for ``SourceWatch``."""
        if now < self._due:
            return
        self._due = inf  # until the answer is there
        read = {one: one.origin for partitions in groups.values() for one in partitions if one.origin is not None}
        self._services.background.submit(
            lambda: _successions(self._cluster, read),
            done=lambda views: self._told(read, views),
            failed=lambda _: self._told(read, {}),
        )

    def _told(self, read: Read, views: Mapping[str, TopicView]) -> None:
        self._due = self._services.clock.monotonic() + EVERY_S
        for one, origin in read.items():
            if one.origin is origin and _has_successor(one, origin, views):
                self._succeeded(one)


def _successions(cluster: Cluster, read: Read) -> Mapping[str, TopicView]:
    """Answer the newest view of topics that are read from brokers which somebody else does not name any more."""
    given_up = cluster.survey().given_up if read else set()
    topics = {one.assignment.source_topic for one, origin in read.items() if origin.leader.broker in given_up}
    return cluster.newest_topics(topics) if topics else {}


def _has_successor(one: MirrorPartition, origin: Origin, views: Mapping[str, TopicView]) -> bool:
    view = views.get(one.assignment.source_topic)
    leader = view.partitions.get(one.assignment.partition) if view is not None else None
    return leader is not None and leader.epoch > origin.leader.epoch
