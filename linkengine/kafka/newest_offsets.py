"""Offsets of a topic as its newest leaders report them, for decisions on which records depend. Blocking.

An admin client uses the metadata of whichever broker it asks. A broker that is cut off from the controllers names outdated
leaders, perhaps itself, whose log ends stand still while producers write to the new leaders. So all brokers are queried for the
leaders, and the highest leader epochs count.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.admin_errors import refused
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import TOPIC_GONE, BrokerError
from linkengine.kafka.offsets import LATEST, epoch_ends, list_offsets
from linkengine.kafka.topicviews import Survey, TopicView


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """The offsets of a topic, by partition."""

    topic_id: str
    stable: dict[int, int]  # last stable offsets
    ends: dict[int, int]  # high watermarks, read after them


def newest_ends(address: ClusterAddress, topic: str) -> TopicEnds:
    """Return the ends; raise if a partition has no leader, or if a silent broker may know a newer leader."""
    with closing(Cluster(address)) as cluster:
        return read_ends(cluster, topic, newest_view(cluster, topic))


def read_ends(cluster: Cluster, topic: str, view: TopicView) -> TopicEnds:
    """Return the ends as the leaders of this view report them; raise if a partition has no leader."""
    stable = read_offsets(cluster, topic, view, timestamp=LATEST, read_committed=True)
    return TopicEnds(topic_id=view.topic_id_text, stable=stable, ends=read_offsets(cluster, topic, view, timestamp=LATEST))


def count_partitions(address: ClusterAddress, topic: str) -> int:
    """Return the partition count of the topic in the newest metadata; raise if a broker is silent."""
    with closing(Cluster(address)) as cluster:
        return len(newest_view(cluster, topic).partitions)


def known_topic_ids(address: ClusterAddress, topic: str) -> frozenset[str]:
    """Return the ids under which any broker has the topic; raise if one that is silent or refuses may have it."""
    with closing(Cluster(address)) as cluster:
        survey = _survey(cluster, topic)
    survey.check_complete(f"topic {topic!r} exists")
    known, error = survey.topic_ids[topic], survey.topics[topic].error
    if not known and error and error not in TOPIC_GONE:
        raise BrokerError(error, f"It is unknown whether topic {topic!r} exists")
    return known


def newest_view(cluster: Cluster, topic: str) -> TopicView:
    """Return the topic with its newest leaders; raise if a silent broker may know a newer leader."""
    survey = _survey(cluster, topic)
    view = survey.topics[topic]
    if view.error:
        raise BrokerError(view.error, f"Topic {topic!r} cannot be read")
    survey.check_complete(f"topic {topic!r} has another leader, with more records")
    return view


def _survey(cluster: Cluster, topic: str) -> Survey:
    try:
        return cluster.survey([topic])
    except LinkEngineError as error:
        raise refused(error, what=f"describe topic {topic!r}") from None


def read_offsets(
    cluster: Cluster, topic: str, view: TopicView, *, timestamp: int, read_committed: bool = False
) -> dict[int, int]:
    """Return the ListOffsets results of the leaders of this view, by partition; raise if a partition has no leader."""
    found: dict[int, int] = {}
    for broker, epochs in view.by_leader().items():
        places = [(topic, partition) for partition in epochs]
        results = list_offsets(cluster, broker, places, timestamp=timestamp, read_committed=read_committed)
        for (_, partition), (error, offset) in results.items():
            if error:
                raise BrokerError(error, f"The offsets of {topic}-{partition} cannot be read")
            found[partition] = offset
    return found


def common_end(cluster: Cluster, topic: str, view: TopicView, *, epochs: Mapping[int, int]) -> dict[int, int]:
    """Return, by partition, up to which offset a topic still holds the records of these leader epochs (KIP-101).

    0 if that is unknown: the leader knows no such epoch, or only older ones. Partitions that the topic does not have are left
    out. Raises if a partition has no leader.
    """
    found: dict[int, int] = {}
    for broker, leaders in view.by_leader().items():
        requested = {(topic, number): (epoch, epochs[number]) for number, epoch in leaders.items() if number in epochs}
        for (_, number), (error, epoch, end) in (epoch_ends(cluster, broker, requested) if requested else {}).items():
            if error:
                raise BrokerError(error, f"The history of {topic}-{number} cannot be read")
            found[number] = end if leaders[number] >= epochs[number] and epoch >= 0 else 0
    return found
