"""Consumer groups of a cluster: which there are, what they have committed, and commits in their name. Blocking.

Spoken on the wire (ListGroups, FindCoordinator 4, OffsetFetch 8, OffsetCommit), many groups a request: librdkafka leaves share
and streams groups out of its list, takes one group a call, and was seen to end the process when a group's first coordinator is
just being made. A commit without a member is refused by the coordinator while the group has members, so a group that comes to
life between our look and our commit is never overwritten. ``None`` among results means success.
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
from linkengine.domain.groups import Committed, Group, Place, shown
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.connection import Connection

BATCH = 100  # groups of one request
ATTEMPTS = 6  # while a coordinator is being made or moves: half a second each
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
# One request's offsets become one batch of __consumer_offsets, each with the name of group and topic: below its 1 MB.
COMMIT_BYTES = 512 << 10
_ENTRY_BYTES = 64
_OF_ONE_ANSWER = frozenset({ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, ErrorCode.INTERNAL_ERROR})
MOST_PARTS = 16
FAILED_IN_A_ROW = 3  # commits over which a broker closes the connection; then it is not the group, and the others wait
Offsets = Mapping[Place, Committed]
StillDue = Callable[[Offsets], Offsets]
_Result = TypeVar("_Result")
_Answers = dict[str, _Result | LinkEngineError]  # by group


class GroupInUseError(LinkEngineError):
    """The coordinator refused a commit because the group has members."""


class MetadataLeftOutError(LinkEngineError):
    """An offset was committed, but without its metadata: the cluster allows less (``offset.metadata.max.bytes``)."""

    def __init__(self, metadata: str) -> None:
        super().__init__(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"Its metadata of {len(metadata.encode())} bytes is left out: offset.metadata.max.bytes of the destination is "
            "smaller. Raise it there if consumers need the metadata.",
        )


def list_groups(cluster: Cluster) -> tuple[dict[str, Group], str]:
    """List the groups the principal may describe, by name, and why the list may not be complete ("" if it is)."""
    found: dict[str, Group] = {}
    missing = []
    cluster.survey()  # a broker that was cut off does not know all
    for broker in cluster.brokers():
        try:
            found |= {group.name: group for group in _groups_of(cluster, broker)}
        except LinkEngineError as error:
            missing.append(error)
    if missing and len(missing) == len(cluster.brokers()):
        raise missing[0]
    return found, " ".join(error.message for error in missing)


def committed(
    cluster: Cluster, groups: Iterable[str], *, stable_at: Iterable[Place] | None = None
) -> tuple[dict[str, dict[Place, Committed]], dict[str, LinkEngineError]]:
    """Read all committed offsets of groups by topic and partition, and why those of others cannot be read.

    ``stable_at``: only of these partitions, and a group with an offset there that a transaction has not decided yet cannot be
    read (KIP-447). They are named, since a broker that is asked for all offsets leaves out those that nobody committed before.
    Raises TIMEOUT_ERROR then while a broker is silent that may know of newer coordinators.
    """
    topics = None if stable_at is None else _by_topic(stable_at)
    answers = at_coordinators(cluster, groups, partial(_fetch, stable_at=topics), certain=topics is not None)
    offsets = {name: one for name, one in answers.items() if not isinstance(one, LinkEngineError)}
    return offsets, {name: one for name, one in answers.items() if isinstance(one, LinkEngineError)}


def commit(
    cluster: Cluster, offsets: Mapping[str, Offsets], *, still_due: StillDue = lambda offsets: offsets
) -> dict[str, dict[Place, LinkEngineError | None]]:
    """Commit offsets in the names of groups, without a leader epoch; return by group and partition what failed, or None.

    ``still_due`` is asked right before each request, also a repeated one, which of its offsets are wanted by then; the others
    are neither sent nor returned. What one offset is refused for keeps no other from being committed, with
    MetadataLeftOutError where it is its metadata.
    """
    answers = at_coordinators(cluster, offsets, partial(_commit_groups, offsets=offsets, still_due=still_due))
    return {
        name: dict.fromkeys(offsets[name], answer) if isinstance(answer, LinkEngineError) else answer
        for name, answer in answers.items()
    }


def _commit_groups(
    cluster: Cluster, broker: int, names: Sequence[str], *, offsets: Mapping[str, Offsets], still_due: StillDue
) -> _Answers[dict[Place, LinkEngineError | None]]:
    done: _Answers[dict[Place, LinkEngineError | None]] = {}
    failures = 0
    for name in names:
        try:
            done[name] = _commit_group(cluster, broker, name, offsets[name], still_due=still_due)
            failures = 0
        except LinkEngineError as error:
            failures += 1
            done[name] = error
            if error.code not in _OF_ONE_ANSWER or failures == FAILED_IN_A_ROW:  # the broker is silent, or down
                return dict.fromkeys(names, error) | done
    return done


def _commit_group(
    cluster: Cluster, broker: int, name: str, offsets: Offsets, *, still_due: StillDue
) -> dict[Place, LinkEngineError | None] | LinkEngineError:
    """Commit a group's offsets in requests of a bounded size; halve one that is too large, drop metadata that is."""
    done: dict[Place, LinkEngineError | None] = {}
    waiting = list(_portions(name, offsets))
    while waiting:
        portion = waiting.pop(0)
        due = still_due(portion)
        found = _commit_one(cluster, broker, name, due) if due else {}
        if isinstance(found, LinkEngineError):
            return found
        too_large = [place for place, error in found.items() if _has_code(error, KafkaCode.INVALID_COMMIT_OFFSET_SIZE)]
        if too_large and len(due) > 1:
            waiting += [_some(due, too_large[: len(too_large) // 2]), _some(due, too_large[len(too_large) // 2 :])]
            found = {place: error for place, error in found.items() if place not in too_large}
        lengthy = [place for place, error in found.items() if _has_code(error, KafkaCode.OFFSET_METADATA_TOO_LARGE)]
        done |= found | _without_metadata(cluster, broker, name, _some(due, lengthy))
    return done


def _without_metadata(cluster: Cluster, broker: int, name: str, refused: Offsets) -> dict[Place, LinkEngineError | None]:
    """Commit offsets whose metadata was refused for its size without it."""
    if not refused:
        return {}
    again = _commit_one(cluster, broker, name, {place: replace(one, metadata="") for place, one in refused.items()})
    if isinstance(again, LinkEngineError):
        return dict.fromkeys(refused, again)
    return {place: error or MetadataLeftOutError(refused[place].metadata) for place, error in again.items()}


def _portions(name: str, offsets: Offsets) -> Iterator[Offsets]:
    portion: dict[Place, Committed] = {}
    size = 0
    for place, one in offsets.items():
        entry = len(name.encode()) + len(place[0]) + len(one.metadata.encode()) + _ENTRY_BYTES
        if portion and size + entry > COMMIT_BYTES:
            yield portion
            portion, size = {}, 0
        portion[place], size = one, size + entry
    if portion:
        yield portion


def _some(offsets: Offsets, places: Iterable[Place]) -> Offsets:
    return {place: offsets[place] for place in places}


def at_coordinators(
    cluster: Cluster,
    groups: Iterable[str],
    work: Callable[[Cluster, int, Sequence[str]], _Answers[_Result]],
    *,
    certain: bool = False,
) -> _Answers[_Result]:
    """Do ``work`` where each group is coordinated; again while coordinators are being made or move.

    A broker that another one does not name any more is asked for coordinators last: those it names may be long past. Where one
    is silent that may know better, TIMEOUT_ERROR is raised if it has to be ``certain``.
    """
    left = list(groups)
    past = _given_up(cluster, certain=certain) if left else set()
    answers: _Answers[_Result] = {}
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(RETRY_AFTER_S)
        for batch in _batches(left):
            answers |= _once(cluster, batch, work, past=past)
        left = [name for name in left if _is_moving(answers[name])]
        if not left:
            break
    return answers


def _given_up(cluster: Cluster, *, certain: bool) -> set[int]:
    survey = cluster.survey()
    if certain:
        survey.check_complete("consumer groups have got another coordinator, with newer offsets")
    return survey.given_up


def _once(
    cluster: Cluster,
    batch: Sequence[str],
    work: Callable[[Cluster, int, Sequence[str]], _Answers[_Result]],
    *,
    past: Collection[int],
) -> _Answers[_Result]:
    coordinators = _coordinators(cluster, batch, past=past)
    answers: _Answers[_Result] = {name: _unanswered(name) for name in batch}
    answers |= {name: one for name, one in coordinators.items() if isinstance(one, LinkEngineError)}
    for broker in sorted({one for one in coordinators.values() if isinstance(one, int)}):
        names = [name for name in batch if coordinators.get(name) == broker]
        answers |= _in_parts(cluster, broker, names, work)
    return answers


def _in_parts(
    cluster: Cluster, broker: int, names: Sequence[str], work: Callable[[Cluster, int, Sequence[str]], _Answers[_Result]]
) -> _Answers[_Result]:
    """Do ``work`` at one broker; where an answer is too large or cannot be read, again for half of the groups.

    Thus a single group fails alone. A broker that is silent or down is not asked again and again.
    """
    answers: _Answers[_Result] = {}
    parts, failures = [names], 0
    while parts:
        part = parts.pop(0)
        try:
            answers |= work(cluster, broker, part)
        except LinkEngineError as error:
            failures += 1
            if len(part) > 1 and error.code in _OF_ONE_ANSWER and failures < MOST_PARTS:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
            else:
                answers |= dict.fromkeys(part, error)
    return answers


def _coordinators(cluster: Cluster, names: Sequence[str], *, past: Collection[int] = ()) -> dict[str, int | LinkEngineError]:
    def build(connection: Connection) -> Any:
        version = connection.version_for(FindCoordinatorRequest.API_KEY, highest=4, lowest=4)
        return FindCoordinatorRequest(version=version, key_type=_GROUP, coordinator_keys=list(names))

    def read(answer: Any) -> dict[str, int | LinkEngineError]:
        return {
            one.key: _error(one.error_code, f"The coordinator of consumer group {shown(one.key)} is not known")
            if one.error_code
            else int(one.node_id)
            for one in answer.coordinators
        }

    return cluster.call_any(build, response=FindCoordinatorResponse, read=read, last=past)


def _groups_of(cluster: Cluster, broker: int) -> Iterator[Group]:
    def build(connection: Connection) -> Any:
        version = connection.version_for(ListGroupsRequest.API_KEY, highest=5)  # 5: types of groups (KIP-848)
        return ListGroupsRequest(version=version, states_filter=[], types_filter=[])

    def read(answer: Any) -> list[Group]:
        if answer.error_code:
            raise BrokerError(answer.error_code, f"Broker {broker} does not list its consumer groups")
        return [_group(one) for one in answer.groups]

    yield from cluster.call(broker, build, response=ListGroupsResponse, read=read)


def _group(one: Any) -> Group:
    kind = (getattr(one, "group_type", "") or "").lower()
    return Group(name=one.group_id, kind=kind, state=getattr(one, "group_state", "") or "")


def _fetch(
    cluster: Cluster, broker: int, names: Sequence[str], *, stable_at: Mapping[str, list[int]] | None
) -> _Answers[dict[Place, Committed]]:
    OneGroup = OffsetFetchRequest.OffsetFetchRequestGroup
    OneTopic = OneGroup.OffsetFetchRequestTopics
    topics = None
    if stable_at is not None:
        topics = [OneTopic(name=topic, partition_indexes=numbers) for topic, numbers in stable_at.items()]

    def build(connection: Connection) -> Any:
        version = connection.version_for(OffsetFetchRequest.API_KEY, highest=9, lowest=8)
        groups = [OneGroup(group_id=name, member_id=None, member_epoch=-1, topics=topics) for name in names]
        return OffsetFetchRequest(version=version, groups=groups, require_stable=stable_at is not None)

    def read(answer: Any) -> _Answers[dict[Place, Committed]]:
        return {group.group_id: _offsets_of(group) for group in answer.groups}

    return cluster.call(broker, build, response=OffsetFetchResponse, read=read)


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def _offsets_of(group: Any) -> dict[Place, Committed] | LinkEngineError:
    rows = [(topic.name, one) for topic in group.topics for one in topic.partitions]
    # half of the offsets would not mean that there are none for the rest
    code = next((one.error_code for _, one in rows if one.error_code), group.error_code)
    if code:
        return _error(code, f"The offsets of consumer group {shown(group.group_id)} cannot be read")
    return {
        (topic, one.partition_index): Committed(offset=one.committed_offset, metadata=one.metadata or "")
        for topic, one in rows
        if one.committed_offset >= 0  # otherwise there is none
    }


def _commit_one(
    cluster: Cluster, broker: int, name: str, offsets: Offsets
) -> dict[Place, LinkEngineError | None] | LinkEngineError:
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

    def read(answer: Any) -> dict[Place, LinkEngineError | None]:
        return {
            (topic.name, one.partition_index): _error(
                one.error_code, f"Offsets of consumer group {shown(name)} cannot be committed"
            )
            if one.error_code
            else None
            for topic in answer.topics
            for one in topic.partitions
        }

    results = cluster.call(broker, build, response=OffsetCommitResponse, read=read)
    moving = next((error for error in results.values() if _is_moving(error)), None)
    return results if moving is None else moving


def _wire(topic: Any, partition: int, one: Committed) -> Any:
    return topic.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=one.offset, committed_leader_epoch=-1, committed_metadata=one.metadata
    )


def _error(code: int, what: str) -> LinkEngineError:
    told = BrokerError(code, what)
    return GroupInUseError(told.code, told.message) if code in _IN_USE else told


def _unanswered(name: str) -> LinkEngineError:
    message = f"The cluster's answer does not mention consumer group {shown(name)}. Tried again automatically."
    return LinkEngineError(ErrorCode.TIMEOUT_ERROR, message)


def _is_moving(answer: object) -> bool:
    return isinstance(answer, BrokerError) and answer.kafka_code in _MOVING


def _has_code(answer: object, code: KafkaCode) -> bool:
    return isinstance(answer, BrokerError) and answer.kafka_code == code


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, BATCH)):
        yield batch
