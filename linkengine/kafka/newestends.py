"""Where a topic ends as its newest leaders tell it: for answers on which records depend. Blocking.

An admin client believes the broker it happens to ask. One that was cut off from its controllers names the leaders of that time,
perhaps itself, and their ends stand still while producers write to the successors. So all brokers are asked who leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.admin_errors import refused
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.offsets import LATEST, epoch_ends, list_offsets
from linkengine.kafka.topicviews import Survey, TopicView


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """One topic, by partition."""

    topic_id: str
    stable: dict[int, int]  # before the first open transaction
    ends: dict[int, int]  # high watermarks, read after them


def newest_ends(address: ClusterAddress, topic: str) -> TopicEnds:
    """Answer the ends; raise where a partition has no leader, and where a broker that may know a newer one is silent."""
    with closing(Cluster(address)) as cluster:
        return read_ends(cluster, topic, newest_view(cluster, topic))


def read_ends(cluster: Cluster, topic: str, view: TopicView) -> TopicEnds:
    """Answer the ends as the leaders of this view tell them; raise where a partition has none."""
    stable = read_offsets(cluster, topic, view, timestamp=LATEST, read_committed=True)
    return TopicEnds(topic_id=view.topic_id_text, stable=stable, ends=read_offsets(cluster, topic, view, timestamp=LATEST))


def count_partitions(address: ClusterAddress, topic: str) -> int:
    """Answer how many partitions the topic has, as the newest broker knows it; raise where one is silent."""
    with closing(Cluster(address)) as cluster:
        return len(newest_view(cluster, topic).partitions)


def known_topic_ids(address: ClusterAddress, topic: str) -> frozenset[str]:
    """Answer under which ids any broker knows the topic; raise where one is silent that may know it."""
    with closing(Cluster(address)) as cluster:
        survey = _survey(cluster, topic)
    survey.check_complete(f"topic {topic!r} is there")
    return survey.topic_ids[topic]


def newest_view(cluster: Cluster, topic: str) -> TopicView:
    """Answer who leads the topic; raise where a broker is silent that may know a newer leader."""
    survey = _survey(cluster, topic)
    view = survey.topics[topic]
    if view.error:
        raise BrokerError(view.error, f"Topic {topic!r} cannot be seen")
    survey.check_complete(f"topic {topic!r} has got another leader, with more records")
    return view


def _survey(cluster: Cluster, topic: str) -> Survey:
    try:
        return cluster.survey([topic])
    except LinkEngineError as error:
        raise refused(error, what=f"describe topic {topic!r}") from None


def read_offsets(
    cluster: Cluster, topic: str, view: TopicView, *, timestamp: int, read_committed: bool = False
) -> dict[int, int]:
    """Ask ListOffsets of the leaders of this view, by partition; raise where a partition has none."""
    found: dict[int, int] = {}
    for broker, epochs in view.by_leader().items():
        places = [(topic, partition) for partition in epochs]
        answers = list_offsets(cluster, broker, places, timestamp=timestamp, read_committed=read_committed)
        for (_, partition), (error, offset) in answers.items():
            if error:
                raise BrokerError(error, f"The offsets of {topic}-{partition} cannot be seen")
            found[partition] = offset
    return found


def kept_under(cluster: Cluster, topic: str, view: TopicView, *, epochs: Mapping[int, int]) -> dict[int, int]:
    """Answer, by partition, up to which offset a topic still holds what its leader had under these epochs (KIP-101).

    0 where that cannot be told: its leader knows of no such epoch, or of older ones only. Partitions that the topic does not
    have are left out. Raises where one has no leader.
    """
    found: dict[int, int] = {}
    for broker, leaders in view.by_leader().items():
        asked = {(topic, number): (epoch, epochs[number]) for number, epoch in leaders.items() if number in epochs}
        for (_, number), (error, epoch, end) in (epoch_ends(cluster, broker, asked) if asked else {}).items():
            if error:
                raise BrokerError(error, f"The history of {topic}-{number} cannot be read")
            found[number] = end if leaders[number] >= epochs[number] and epoch >= 0 else 0
    return found
