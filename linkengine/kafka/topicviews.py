"""Topics and their leaders as brokers show them, and what the views of several brokers are worth together. Pure."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.codes import BrokerError, KafkaCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads a partition, as of one leader epoch. ``broker`` is -1 while there is none."""

    broker: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as metadata shows it; ``error`` is Kafka's code, 0 where all is well."""

    topic_id: bytes  # 16 bytes, zeros where the cluster has no topic ids
    partitions: dict[int, Leader]
    error: int = 0

    @property
    def topic_id_text(self) -> str:
        """The id as Kafka prints it: base64 for URLs without padding; empty where there is none."""
        return base64.urlsafe_b64encode(self.topic_id).decode().rstrip("=") if any(self.topic_id) else ""

    def by_leader(self) -> dict[int, dict[int, int]]:
        """Answer the leader epochs by broker and partition; under -1 those of partitions without a leader."""
        found: dict[int, dict[int, int]] = {}
        for partition, leader in self.partitions.items():
            found.setdefault(leader.broker, {})[partition] = leader.epoch
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What all brokers of a cluster together know.

    ``given_up``: brokers that another one does not name any more. Such a one is down, or cut off from the controllers and
    answers as if nothing had happened. May be wrong for a moment: whoever asks has to ask for the leaders then.
    """

    topics: dict[str, TopicView]  # with the newest leaders
    complete: bool  # every broker ever heard of has answered: then none knows of a newer leader
    given_up: set[int]
    topic_ids: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by name, as any broker has it
    strangers: bool = False  # as many bootstrap servers as there are brokers are silent, and nobody names them
    mute: tuple[str, ...] = ()  # those of them that take connections and answer nothing: no old names, but frozen machines

    @property
    def everywhere(self) -> bool:
        """Whether what is told can be the last word: a mirror that fails by it does not come back by itself."""
        return self.complete and not self.strangers

    def check_complete(self, what: str) -> None:
        """Raise TIMEOUT_ERROR where a broker is silent that may know better, so that ``what`` cannot be told."""
        if not self.complete:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Not every broker of the cluster answers, so nobody can tell whether {what}. "
                "Bring the brokers back or wait until the cluster has given them up.",
            )
        if self.mute:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"{', '.join(self.mute)} of bootstrap.servers takes connections and answers nothing, and no broker that "
                f"answers names it: it may be frozen, and know better, so nobody can tell whether {what}. Bring it back, or "
                "take it out of bootstrap.servers if it is no broker of this cluster any more.",
            )


def view_of(topic: Any) -> TopicView:
    """Read one topic of an answer to Metadata."""
    partitions = {one.partition_index: Leader(broker=one.leader_id, epoch=one.leader_epoch) for one in topic.partitions}
    topic_id = topic.topic_id.bytes if topic.topic_id else bytes(16)
    return TopicView(topic_id=topic_id, partitions=partitions, error=topic.error_code)


def newest(views: Sequence[TopicView]) -> TopicView:
    """Put views of one topic together: per partition the leader with the newest epoch.

    A broker that lags behind may still show a topic that was deleted, under the name of the one that was created since, and
    with epochs that had grown: what counts is the topic that most of them show. Where there is none, LEADER_NOT_AVAILABLE.
    """
    shown = [view for view in views if not view.error]
    if not shown:
        return views[0]
    shown = [view for view in shown if any(view.topic_id)] or shown  # a broker that is upgraded may not know ids yet
    (topic_id, most), *others = Counter(view.topic_id for view in shown).most_common(2)
    if others and others[0][1] == most:
        return TopicView(topic_id=bytes(16), partitions={}, error=KafkaCode.LEADER_NOT_AVAILABLE)
    partitions: dict[int, Leader] = {}
    for view in shown:
        if view.topic_id == topic_id:
            partitions |= {
                number: leader
                for number, leader in view.partitions.items()
                if number not in partitions or leader.epoch > partitions[number].epoch
            }
    return TopicView(topic_id=topic_id, partitions=partitions)


def topic_ids(views: Sequence[TopicView]) -> frozenset[str]:
    """List the ids under which brokers know a topic: none where it is gone, two while one of them answers from old metadata."""
    return frozenset(view.topic_id_text for view in views if not view.error)


def locate(topics: dict[str, TopicView], topic: str, partition: int) -> tuple[Leader, bytes]:
    """Answer leader and topic id; raise BrokerError with Kafka's code, or TIMEOUT_ERROR while there is no leader."""
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
