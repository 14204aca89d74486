"""Consumer groups of a cluster: which there are, what they have committed, and commits in their name.

Offsets go through librdkafka. The list is asked of every broker directly, since librdkafka leaves out share and streams groups
and each broker knows only those it coordinates. A commit in a group's name is refused by its coordinator (UNKNOWN_MEMBER_ID)
while the group has members, so a group that comes to life between our look and our commit is never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from itertools import islice
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groups import Committed, Group, Place
from linkengine.kafka.admin_errors import translated
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection

BATCH = 100  # groups asked for at the same time
_LIST_VERSION = 5  # group types (KIP-1043)
_IN_USE = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.NON_EMPTY_GROUP})


def list_groups(address: ClusterAddress) -> tuple[dict[str, Group], str]:
    """List the groups the principal may describe, by name, and why the list may not be complete ("" if it is)."""
    found: dict[str, Group] = {}
    missing = []
    with closing(Cluster(address)) as cluster:
        cluster.topics([])
        for broker in cluster.brokers():
            try:
                found |= {group.name: group for group in _groups_of(cluster, broker)}
            except LinkEngineError as error:
                missing.append(error)
    if missing and len(missing) == len(cluster.brokers()):
        raise missing[0]
    return found, " ".join(error.message for error in missing)


def committed(
    session: AdminSession, groups: Iterable[str]
) -> tuple[dict[str, dict[Place, Committed]], dict[str, LinkEngineError]]:
    """Read all committed offsets of groups by topic and partition, and why those of others cannot be read."""
    offsets: dict[str, dict[Place, Committed]] = {}
    failures: dict[str, LinkEngineError] = {}
    for batch in _batches(groups):
        values, errors = session.gather(_start_reading(batch), what="read the offsets of consumer groups")
        for name, result in values.items():
            refused = next((one.error for one in result.topic_partitions if one.error is not None), None)
            if refused is None:
                offsets[name] = _offsets(result)
            else:  # half of the offsets is not "no offset" for the rest
                errors[name] = refused
        failures |= {
            name: translated(error, what=f"read the offsets of consumer group {name!r}") for name, error in errors.items()
        }
    return offsets, failures


def commit(
    session: AdminSession, offsets: Mapping[str, Mapping[Place, Committed]]
) -> dict[str, dict[Place, LinkEngineError | None]]:
    """Commit offsets in the names of groups, without a leader epoch; answer by group and partition what failed, or None."""
    outcomes: dict[str, dict[Place, LinkEngineError | None]] = {}
    for batch in _batches(offsets):
        values, errors = session.gather(
            _start_committing({name: offsets[name] for name in batch}), what="commit the offsets of consumer groups"
        )
        for name in batch:
            results = {} if name in errors else {(one.topic, one.partition): one.error for one in values[name].topic_partitions}
            outcomes[name] = {
                place: _refusal(name, errors[name] if name in errors else results.get(place)) for place in offsets[name]
            }
    return outcomes


class GroupInUseError(LinkEngineError):
    """The coordinator refused a commit because the group has members."""


def _refusal(name: str, error: KafkaError | None) -> LinkEngineError | None:
    if error is None:
        return None
    told = translated(error, what=f"commit offsets of consumer group {name!r}")
    return GroupInUseError(told.code, told.message) if error.code() in _IN_USE else told


def _groups_of(cluster: Cluster, broker: int) -> Iterator[Group]:
    def build(connection: Connection) -> Any:
        version = connection.version_for(ListGroupsRequest.API_KEY, highest=_LIST_VERSION, lowest=0)
        return ListGroupsRequest(version=version, states_filter=[], types_filter=[])

    answer = cluster.call(broker, build, response=ListGroupsResponse)
    if answer.error_code:
        raise BrokerError(answer.error_code, f"Broker {broker} does not list its consumer groups")
    for one in answer.groups:
        kind = (getattr(one, "group_type", "") or "").lower()
        yield Group(name=one.group_id, kind=kind, state=getattr(one, "group_state", "") or "")


def _start_reading(names: Sequence[str]) -> Callable[[AdminClient], dict[str, Future[Any]]]:
    def start(client: AdminClient) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {}
        for name in names:  # the client takes one group a call
            futures |= client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], request_timeout=REQUEST_TIMEOUT_S
            )
        return futures

    return start


def _start_committing(
    offsets: Mapping[str, Mapping[Place, Committed]],
) -> Callable[[AdminClient], dict[str, Future[Any]]]:
    def start(client: AdminClient) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {}
        for name, places in offsets.items():
            wanted = [TopicPartition(topic, partition, one.offset, one.metadata) for (topic, partition), one in places.items()]
            request = ConsumerGroupTopicPartitions(name, wanted)
            futures |= client.alter_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S)
        return futures

    return start


def _offsets(result: Any) -> dict[Place, Committed]:
    return {
        (one.topic, one.partition): Committed(offset=one.offset, metadata=one.metadata or "")
        for one in result.topic_partitions
        if one.offset >= 0  # otherwise there is none
    }


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, BATCH)):
        yield batch
