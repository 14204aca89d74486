"""Consumer groups of a cluster: list them, read their committed offsets, commit offsets for them. Blocking.

Uses the wire protocol (ListGroups, FindCoordinator 4, OffsetFetch 8, OffsetCommit) with many groups per request. librdkafka
leaves share and streams groups out of its list, takes a group per call, and was seen to crash while a group's first
coordinator was being created.

The coordinator refuses a commit without a member id while the group has members. So a group that becomes active between the
read and the commit is never overwritten. ``None`` among results means success.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Committed, Group, quoted_name
from linkengine.domain.plans import TopicPartition
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import BrokerError, KafkaCode

BATCH = 100  # groups per request
ATTEMPTS = 6  # while a coordinator is being created or moves: half a second each
RETRY_AFTER_S = 0.5
_GROUP = 0  # type of key in FindCoordinator
_MOVING = frozenset({KafkaCode.COORDINATOR_LOAD_IN_PROGRESS, KafkaCode.COORDINATOR_NOT_AVAILABLE, KafkaCode.NOT_COORDINATOR})
_IN_USE = frozenset(
    {
        KafkaCode.UNKNOWN_MEMBER_ID,
        KafkaCode.ILLEGAL_GENERATION,
        KafkaCode.STALE_MEMBER_EPOCH,
        KafkaCode.REBALANCE_IN_PROGRESS,
    }
)
# The offsets of a request become a batch of __consumer_offsets, each with the names of group and topic: below its 1 MB.
COMMIT_BYTES = 512 << 10
_ENTRY_BYTES = 64
_OF_ONE_RESPONSE = frozenset({ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, ErrorCode.INTERNAL_ERROR})
MOST_PARTS = 16
FAILED_IN_A_ROW = 3  # commits after which the broker closed the connection; then the broker is at fault: skip the rest
Offsets = Mapping[TopicPartition, Committed]
StillDue = Callable[[Offsets], Offsets]
_Result = TypeVar("_Result")
_ByGroup = dict[str, _Result | LinkEngineError]  # by group


class GroupInUseError(LinkEngineError):
    """The coordinator refused a commit because the group has members."""


class MetadataLeftOutError(LinkEngineError):
    """An offset was committed without its metadata, which is too long for the cluster (``offset.metadata.max.bytes``)."""

    def __init__(self, metadata: str) -> None:
        super().__init__(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"Its metadata of {len(metadata.encode())} bytes is left out: offset.metadata.max.bytes of the destination is "
            "smaller. Raise it there if consumers need the metadata.",
        )


def list_groups(cluster: Cluster) -> tuple[dict[str, Group], dict[int, LinkEngineError]]:
    """Return the groups that the principal may describe, by name, and the errors of brokers whose groups may be missing."""
    found: dict[str, Group] = {}
    failures: dict[int, LinkEngineError] = {}
    cluster.survey()  # reads all brokers: the list of a broker that was cut off may be incomplete
    for broker in cluster.brokers():
        try:
            found |= {group.name: group for group in _groups_of(cluster, broker)}
        except LinkEngineError as error:
            failures[broker] = error
    if failures and len(failures) == len(cluster.brokers()):
        raise next(iter(failures.values()))
    return found, failures


def committed(
    cluster: Cluster, groups: Iterable[str], *, stable_at: Iterable[TopicPartition] | None = None, certain: bool = False
) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, LinkEngineError]]:
    """Return all committed offsets of groups by topic and partition, and the errors of groups that cannot be read.

    With ``stable_at``, only these partitions are read, and a group with an offset there in a pending transaction cannot be read
    (KIP-447). The partitions are named in the request, since the response to a request for all offsets lacks those without an
    earlier commit. In this case, or if they have to be ``certain``, raises TIMEOUT_ERROR while a silent broker may name newer
    coordinators.
    """
    topics = None if stable_at is None else _by_topic(stable_at)
    fetch = partial(fetch_offsets, topics=topics, stable=topics is not None)
    results = at_coordinators(cluster, groups, fetch, certain=certain or topics is not None)
    offsets = {name: result for name, result in results.items() if not isinstance(result, LinkEngineError)}
    return offsets, {name: result for name, result in results.items() if isinstance(result, LinkEngineError)}


def commit(
    cluster: Cluster, offsets: Mapping[str, Offsets], *, still_due: StillDue = lambda offsets: offsets
) -> dict[str, dict[TopicPartition, LinkEngineError | None]]:
    """Commit offsets for groups, without a leader epoch; return the error, or None, by group and partition.

    ``still_due`` is called right before each request, including retries, and returns the offsets that are still wanted; the
    others are neither sent nor returned. The refusal of an offset does not stop the others. MetadataLeftOutError means that
    the offset was committed without its metadata.
    """
    results = at_coordinators(cluster, offsets, partial(_commit_groups, offsets=offsets, still_due=still_due))
    return {
        name: dict.fromkeys(offsets[name], result) if isinstance(result, LinkEngineError) else result
        for name, result in results.items()
    }


def _commit_groups(
    cluster: Cluster, broker: int, names: Sequence[str], *, offsets: Mapping[str, Offsets], still_due: StillDue
) -> _ByGroup[dict[TopicPartition, LinkEngineError | None]]:
    done: _ByGroup[dict[TopicPartition, LinkEngineError | None]] = {}
    failures = 0
    for name in names:
        try:
            done[name] = _commit_group(cluster, broker, name, offsets[name], still_due=still_due)
            failures = 0
        except LinkEngineError as error:
            failures += 1
            done[name] = error
            if error.code not in _OF_ONE_RESPONSE or failures == FAILED_IN_A_ROW:  # the broker is silent, or down
                return dict.fromkeys(names, error) | done
    return done


def _commit_group(
    cluster: Cluster, broker: int, name: str, offsets: Offsets, *, still_due: StillDue
) -> dict[TopicPartition, LinkEngineError | None] | LinkEngineError:
    """Commit a group's offsets in requests of limited size; halve a request that is too large, drop too long metadata."""
    done: dict[TopicPartition, LinkEngineError | None] = {}
    waiting = list(_portions(name, offsets))
    while waiting:
        portion = waiting.pop(0)
        due = still_due(portion)
        found = _commit_request(cluster, broker, name, due) if due else {}
        if isinstance(found, LinkEngineError):
            return found
        too_large = [place for place, error in found.items() if _has_code(error, KafkaCode.INVALID_COMMIT_OFFSET_SIZE)]
        if too_large and len(due) > 1:
            waiting += [_subset(due, too_large[: len(too_large) // 2]), _subset(due, too_large[len(too_large) // 2 :])]
            found = {place: error for place, error in found.items() if place not in too_large}
        lengthy = [place for place, error in found.items() if _has_code(error, KafkaCode.OFFSET_METADATA_TOO_LARGE)]
        done |= found | _without_metadata(cluster, broker, name, _subset(due, lengthy))
    return done


def _without_metadata(
    cluster: Cluster, broker: int, name: str, refused: Offsets
) -> dict[TopicPartition, LinkEngineError | None]:
    """Commit offsets again without their metadata, which was refused for its size."""
    if not refused:
        return {}
    again = _commit_request(cluster, broker, name, {place: replace(offset, metadata="") for place, offset in refused.items()})
    if isinstance(again, LinkEngineError):
        return dict.fromkeys(refused, again)
    return {place: error or MetadataLeftOutError(refused[place].metadata) for place, error in again.items()}


def _portions(name: str, offsets: Offsets) -> Iterator[Offsets]:
    portion: dict[TopicPartition, Committed] = {}
    size = 0
    for place, offset in offsets.items():
        entry = len(name.encode()) + len(place[0]) + len(offset.metadata.encode()) + _ENTRY_BYTES
        if portion and size + entry > COMMIT_BYTES:
            yield portion
            portion, size = {}, 0
        portion[place], size = offset, size + entry
    if portion:
        yield portion


def _subset(offsets: Offsets, places: Iterable[TopicPartition]) -> Offsets:
    return {place: offsets[place] for place in places}


def at_coordinators(
    cluster: Cluster,
    groups: Iterable[str],
    work: Callable[[Cluster, int, Sequence[str]], _ByGroup[_Result]],
    *,
    certain: bool = False,
) -> _ByGroup[_Result]:
    """Call ``work`` at the coordinator of each group; retry while coordinators are being created or move.

    A broker that other brokers have dropped from their metadata is queried for coordinators last: its metadata may be stale.
    If a silent broker may name newer coordinators, TIMEOUT_ERROR is raised when the result has to be ``certain``.
    """
    left = list(groups)
    stale = _stale_brokers(cluster, certain=certain) if left else set()
    results: _ByGroup[_Result] = {}
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(RETRY_AFTER_S)
        for batch in _batches(left):
            results |= _call_coordinators(cluster, batch, work, stale=stale)
        left = [name for name in left if _is_moving(results[name])]
        if not left:
            break
    return results


def _stale_brokers(cluster: Cluster, *, certain: bool) -> set[int]:
    survey = cluster.survey()
    if certain:
        survey.check_complete("consumer groups have moved to another coordinator, with newer offsets")
    return survey.unlisted_brokers


def _call_coordinators(
    cluster: Cluster,
    batch: Sequence[str],
    work: Callable[[Cluster, int, Sequence[str]], _ByGroup[_Result]],
    *,
    stale: Collection[int],
) -> _ByGroup[_Result]:
    coordinators = _coordinators(cluster, batch, stale=stale)
    results: _ByGroup[_Result] = {name: _missing_from_response(name) for name in batch}
    results |= {name: coordinator for name, coordinator in coordinators.items() if isinstance(coordinator, LinkEngineError)}
    for broker in sorted({coordinator for coordinator in coordinators.values() if isinstance(coordinator, int)}):
        names = [name for name in batch if coordinators.get(name) == broker]
        results |= _in_parts(cluster, broker, names, work)
    return results


def _in_parts(
    cluster: Cluster, broker: int, names: Sequence[str], work: Callable[[Cluster, int, Sequence[str]], _ByGroup[_Result]]
) -> _ByGroup[_Result]:
    """Call ``work`` at a broker; if a response is too large or unreadable, repeat it for each half of the groups.

    Thus only the group that causes the error fails. A broker that is silent or down gets no further requests.
    """
    results: _ByGroup[_Result] = {}
    parts, failures = [names], 0
    while parts:
        part = parts.pop(0)
        try:
            results |= work(cluster, broker, part)
        except LinkEngineError as error:
            failures += 1
            if len(part) > 1 and error.code in _OF_ONE_RESPONSE and failures < MOST_PARTS:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
            else:
                results |= dict.fromkeys(part, error)
    return results


def _coordinators(cluster: Cluster, names: Sequence[str], *, stale: Collection[int] = ()) -> dict[str, int | LinkEngineError]:
    def build(connection: Connection) -> Any:
        version = connection.version_for(FindCoordinatorRequest.API_KEY, highest=4, lowest=4)
        return FindCoordinatorRequest(version=version, key_type=_GROUP, coordinator_keys=list(names))

    def read(response: Any) -> dict[str, int | LinkEngineError]:
        return {
            coordinator.key: _error(
                coordinator.error_code, f"The coordinator of consumer group {quoted_name(coordinator.key)} is unknown"
            )
            if coordinator.error_code
            else int(coordinator.node_id)
            for coordinator in response.coordinators
        }

    return cluster.call_any(build, response=FindCoordinatorResponse, read=read, last=stale)


def _groups_of(cluster: Cluster, broker: int) -> Iterator[Group]:
    def build(connection: Connection) -> Any:
        version = connection.version_for(ListGroupsRequest.API_KEY, highest=5)  # 5: types of groups (KIP-848)
        return ListGroupsRequest(version=version, states_filter=[], types_filter=[])

    def read(response: Any) -> list[Group]:
        if response.error_code:
            raise BrokerError(response.error_code, f"Broker {broker} does not list its consumer groups")
        return [_group(group) for group in response.groups]

    yield from cluster.call(broker, build, response=ListGroupsResponse, read=read)


def _group(listed: Any) -> Group:
    kind = (getattr(listed, "group_type", "") or "").lower()
    return Group(name=listed.group_id, kind=kind, state=getattr(listed, "group_state", "") or "")


def fetch_offsets(
    cluster: Cluster,
    broker: int,
    names: Sequence[str],
    *,
    topics: Mapping[str, Sequence[int]] | None = None,
    stable: bool = False,
) -> _ByGroup[dict[TopicPartition, Committed]]:
    """Return the committed offsets of groups from their coordinator, or an error for a group.

    ``topics`` are the partitions to read, by topic; None: all with an offset. With ``stable``, a group with an offset in a
    pending transaction there cannot be read (KIP-447).
    """
    GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
    TopicRequest = GroupRequest.OffsetFetchRequestTopics
    wanted = None
    if topics is not None:
        wanted = [TopicRequest(name=topic, partition_indexes=list(numbers)) for topic, numbers in topics.items()]

    def build(connection: Connection) -> Any:
        version = connection.version_for(OffsetFetchRequest.API_KEY, highest=9, lowest=8)
        groups = [GroupRequest(group_id=name, member_id=None, member_epoch=-1, topics=wanted) for name in names]
        return OffsetFetchRequest(version=version, groups=groups, require_stable=stable)

    def read(response: Any) -> _ByGroup[dict[TopicPartition, Committed]]:
        return {group.group_id: _offsets_of(group) for group in response.groups}

    return cluster.call(broker, build, response=OffsetFetchResponse, read=read)


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def _offsets_of(group: Any) -> dict[TopicPartition, Committed] | LinkEngineError:
    rows = [(topic.name, row) for topic in group.topics for row in topic.partitions]
    # If an offset cannot be read, the others must not be taken as the complete set.
    code = next((row.error_code for _, row in rows if row.error_code), group.error_code)
    if code:
        return _error(code, f"The offsets of consumer group {quoted_name(group.group_id)} cannot be read")
    return {
        (topic, row.partition_index): Committed(offset=row.committed_offset, metadata=row.metadata or "")
        for topic, row in rows
        if row.committed_offset >= 0  # -1: no committed offset
    }


def _commit_request(
    cluster: Cluster, broker: int, name: str, offsets: Offsets
) -> dict[TopicPartition, LinkEngineError | None] | LinkEngineError:
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic

    def build(connection: Connection) -> Any:
        version = connection.version_for(OffsetCommitRequest.API_KEY, highest=9, lowest=6)
        topics = [
            Topic(name=topic, partitions=[_wire(Topic, place[1], offsets[place]) for place in offsets if place[0] == topic])
            for topic in sorted({topic for topic, _ in offsets})
        ]
        return OffsetCommitRequest(
            version=version,
            group_id=name,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )

    def read(response: Any) -> dict[TopicPartition, LinkEngineError | None]:
        return {
            (topic.name, partition.partition_index): _error(
                partition.error_code, f"Offsets of consumer group {quoted_name(name)} cannot be committed"
            )
            if partition.error_code
            else None
            for topic in response.topics
            for partition in topic.partitions
        }

    results = cluster.call(broker, build, response=OffsetCommitResponse, read=read)
    moving = next((error for error in results.values() if _is_moving(error)), None)
    return results if moving is None else moving


def _wire(topic: Any, partition: int, offset: Committed) -> Any:
    return topic.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset.offset, committed_leader_epoch=-1, committed_metadata=offset.metadata
    )


def _error(code: int, what: str) -> LinkEngineError:
    error = BrokerError(code, what)
    return GroupInUseError(error.code, error.message) if code in _IN_USE else error


def _missing_from_response(name: str) -> LinkEngineError:
    message = f"The cluster's response does not contain consumer group {quoted_name(name)}. Retrying."
    return LinkEngineError(ErrorCode.TIMEOUT_ERROR, message)


def _is_moving(response: object) -> bool:
    return isinstance(response, BrokerError) and response.kafka_code in _MOVING


def _has_code(response: object, code: KafkaCode) -> bool:
    return isinstance(response, BrokerError) and response.kafka_code == code


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, BATCH)):
        yield batch
