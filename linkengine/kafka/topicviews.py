"""Topics and their leaders in the metadata of brokers, and how the metadata of several brokers is combined. Pure functions."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.protocol import TOPIC_GONE, BrokerError, KafkaCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The leader of a partition in a leader epoch. ``broker`` is -1 while there is none."""

    broker: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic in the metadata of a broker; ``error`` is Kafka's error code, 0 for success."""

    topic_id: bytes  # 16 bytes, zeros where the cluster has no topic ids
    partitions: dict[int, Leader]
    error: int = 0

    @property
    def topic_id_text(self) -> str:
        """The id as Kafka prints it: base64 for URLs without padding; empty where there is none."""
        return base64.urlsafe_b64encode(self.topic_id).decode().rstrip("=") if any(self.topic_id) else ""

    def by_leader(self) -> dict[int, dict[int, int]]:
        """Return the leader epochs by broker and partition; partitions without a leader are under -1."""
        found: dict[int, dict[int, int]] = {}
        for partition, leader in self.partitions.items():
            found.setdefault(leader.broker, {})[partition] = leader.epoch
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The combined metadata of all brokers of a cluster.

    ``unlisted_brokers`` are brokers that another broker no longer lists. Such a broker is down, or cut off from the controllers
    and responding as before. The set may be wrong for a moment, so the caller then has to query the leaders.
    """

    topics: dict[str, TopicMetadata]  # with the newest leaders
    complete: bool  # every broker ever listed has responded, so none has a newer leader
    unlisted_brokers: set[int]
    topic_ids: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by name, as known by any broker
    unlisted_may_be_majority: bool = False  # at least as many bootstrap servers as brokers are silent and listed by no broker
    unresponsive_servers: tuple[
        str, ...
    ] = ()  # those of them that accept connections and do not respond: not old names, but frozen machines

    @property
    def is_final(self) -> bool:
        """True if a mirror may be failed by this survey, which is final: a failed mirror is not resumed automatically."""
        return self.complete and not self.unlisted_may_be_majority

    def check_complete(self, what: str) -> None:
        """Raise TIMEOUT_ERROR if a silent broker may have newer metadata, so that it is unknown whether ``what``."""
        if not self.complete:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Not every broker of the cluster responds, so it is unknown whether {what}. "
                "Bring the brokers back, or wait until the cluster has dropped them from its metadata.",
            )
        if self.unresponsive_servers:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"{', '.join(self.unresponsive_servers)} of bootstrap.servers accepts connections but does not respond, and no "
                f"broker that responds lists it. It may be frozen and have newer data, so it is unknown whether {what}. "
                "Bring it back, or remove it from bootstrap.servers if it is no longer a broker of this cluster.",
            )


def view_of(topic: Any) -> TopicMetadata:
    """Return a topic of a Metadata response."""
    partitions = {
        partition.partition_index: Leader(broker=partition.leader_id, epoch=partition.leader_epoch)
        for partition in topic.partitions
    }
    topic_id = topic.topic_id.bytes if topic.topic_id else bytes(16)
    return TopicMetadata(topic_id=topic_id, partitions=partitions, error=topic.error_code)


def newest(views: Sequence[TopicMetadata]) -> TopicMetadata:
    """Combine the views of a topic: per partition, the leader with the highest leader epoch.

    A stale broker may still show a deleted topic under the name of the topic that was created since, with higher leader epochs.
    So only the topic id that most brokers show counts. Without a majority the error is LEADER_NOT_AVAILABLE. A topic is unknown
    only if all brokers return that: a broker that refuses to describe it may have it.
    """
    shown = [view for view in views if not view.error]
    if not shown:
        return next((view for view in views if view.error not in TOPIC_GONE), views[0])
    shown = [view for view in shown if any(view.topic_id)] or shown  # during an upgrade, a broker may not have topic ids yet
    (topic_id, most), *others = Counter(view.topic_id for view in shown).most_common(2)
    if others and others[0][1] == most:
        return TopicMetadata(topic_id=bytes(16), partitions={}, error=KafkaCode.LEADER_NOT_AVAILABLE)
    partitions: dict[int, Leader] = {}
    for view in shown:
        if view.topic_id == topic_id:
            partitions |= {
                number: leader
                for number, leader in view.partitions.items()
                if number not in partitions or leader.epoch > partitions[number].epoch
            }
    return TopicMetadata(topic_id=topic_id, partitions=partitions)


def topic_ids(views: Sequence[TopicMetadata]) -> frozenset[str]:
    """Return the ids that brokers have for a topic: none if it is gone, two while a broker returns old metadata."""
    return frozenset(view.topic_id_text for view in views if not view.error)


def locate(topics: dict[str, TopicMetadata], topic: str, partition: int) -> tuple[Leader, bytes]:
    """Return leader and topic id; raise BrokerError with Kafka's code, or TIMEOUT_ERROR while there is no leader."""
    view = topics.get(topic)
    if view is None or view.error:
        raise BrokerError(view.error if view else 3, f"Topic {topic!r} cannot be used")
    leader = view.partitions.get(partition)
    if leader is None:
        raise BrokerError(3, f"Partition {partition} of topic {topic!r} cannot be used")
    if leader.broker < 0:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR, f"Partition {partition} of topic {topic!r} has no leader; a broker is down. Retrying."
        )
    return leader, view.topic_id
