"""Consumer groups with their members and lag; functions over a Cluster. Read-only.

Uses the wire protocol: librdkafka cuts every name at its first NUL character, refuses the empty name with an error for the
whole list, and describes no group whose members it cannot parse. Groups of the classic protocol come from DescribeGroups;
groups that it does not find come from ConsumerGroupDescribe (KIP-848), which kafka-python does not have yet.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse

from linkengine.domain.clusterviews import GroupDescription, LagDescription, MemberView, TopicGroup, TopicGroups
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import KINDS, Committed, Group, quoted_name
from linkengine.domain.plans import TopicPartition
from linkengine.kafka.admin_groups import FAILED_IN_A_ROW, at_coordinators, fetch_offsets, list_groups
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import LATEST, list_offsets
from linkengine.kafka.protocol import (
    INT16,
    INT32,
    NO_TAGS,
    UNREADABLE,
    BrokerError,
    KafkaCode,
    Reader,
    compact_string,
    request_frame,
    skip_response_header,
    uvarint,
)
from linkengine.kafka.topicviews import TopicMetadata

_CONSUMER_PROTOCOLS = ("consumer", "")  # "": offsets were committed without members
_NOT_THERE = frozenset({KafkaCode.GROUP_ID_NOT_FOUND, KafkaCode.UNSUPPORTED_VERSION})
_DEAD = "DEAD"  # the state of a group that does not exist
_UNKNOWN = "UNKNOWN"
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SMALLEST_TOPIC = INT16.size + INT32.size  # bytes of an assignment's topic: the lengths of its name and its partitions
Described = GroupDescription | None  # None: the group does not exist
_Offsets = Mapping[TopicPartition, Committed]
_GroupOffsets = tuple[GroupDescription, _Offsets]
_Failures = Mapping[int, list[LinkEngineError]]  # of requests in a row, by broker


def groups(cluster: Cluster) -> tuple[list[GroupDescription], str]:
    """Return every consumer group that the principal may describe, by name, and why groups may be missing ("": none are).

    A group that cannot be described has the state UNKNOWN and the error.
    """
    wanted, failures = _list_consumer_groups(cluster)
    found = described(cluster, wanted)
    views = [_view_of(wanted[name], found[name]) for name in sorted(wanted)]
    return [view for view in views if view is not None], " ".join(error.message for error in failures.values())


def described(cluster: Cluster, names: Iterable[str]) -> dict[str, Described | LinkEngineError]:
    """Return the named groups: None for those that do not exist, an error for those that cannot be described."""
    return at_coordinators(cluster, names, _describe)


def lags(
    group: GroupDescription, committed: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
) -> list[LagDescription]:
    """Return the lag of a group per partition; the log end is None if it cannot be read."""
    readers = {place: member for member in group.members for place in member.assigned}
    return [_lag(place, committed[place].offset, ends.get(place), readers.get(place)) for place in sorted(committed)]


def of_topic(cluster: Cluster, topic: str, *, most: int, budget_s: float) -> TopicGroups:
    """Return the consumer groups with members or committed offsets in a topic, by name, with their lag there.

    The first ``most`` groups of the cluster are examined, fewer if that takes longer than ``budget_s`` after they were listed.
    A group that cannot be read is included with the error, since it may read the topic. A broker that does not respond gets no
    further requests. Raises if the topic cannot be described.
    """
    view = cluster.survey([topic]).topics[topic]
    if view.error:
        raise BrokerError(view.error, f"Topic {topic!r} cannot be described")
    listed, unlisted = _list_consumer_groups(cluster)
    failures: _Failures = defaultdict(list, {broker: [error] for broker, error in unlisted.items()})
    reading = _Reading(topic=topic, partitions=list(view.partitions), failures=failures, ends_at=time.monotonic() + budget_s)
    found = at_coordinators(cluster, sorted(listed)[:most], reading.read)
    found = {name: group for name, group in found.items() if not isinstance(group, _BudgetError)}
    ends, unread = _log_ends(cluster, topic, view, failures)
    rows = [_topic_group(listed[name], group, topic=topic, ends=ends) for name, group in found.items()]
    return TopicGroups(
        partitions=len(view.partitions),
        groups=tuple(row for row in rows if row is not None),
        examined=len(found),
        listed=len(listed),
        incomplete=" ".join(dict.fromkeys([*(error.message for error in unlisted.values()), *unread])),
    )


def _list_consumer_groups(cluster: Cluster) -> tuple[dict[str, Group], dict[int, LinkEngineError]]:
    """Return the groups of consumers by name, and the errors of brokers whose groups may be missing."""
    listed, failures = list_groups(cluster)
    return {name: group for name, group in listed.items() if not group.kind or group.kind in KINDS}, failures


class _BudgetError(LinkEngineError):
    """A group was not examined, because the time for all groups is over."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.TIMEOUT_ERROR, "The time to examine groups is over.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Reads groups with their committed offsets in a topic, at their coordinators, until ``ends_at`` (monotonic)."""

    topic: str
    partitions: Sequence[int]
    failures: _Failures
    ends_at: float

    def read(self, cluster: Cluster, broker: int, names: Sequence[str]) -> dict[str, _GroupOffsets | LinkEngineError | None]:
        """Return groups of a coordinator. Two requests, three for groups of the new protocol."""
        failed = self.failures[broker]
        if len(failed) >= FAILED_IN_A_ROW or (failed and failed[-1].code is ErrorCode.TIMEOUT_ERROR):
            raise failed[-1]
        if time.monotonic() > self.ends_at:
            raise _BudgetError
        try:
            views = _describe(cluster, broker, names)
            offsets = self._committed(
                cluster, broker, [name for name, view in views.items() if isinstance(view, GroupDescription)]
            )
        except LinkEngineError as error:
            failed.append(error)
            raise
        failed.clear()
        found: dict[str, _GroupOffsets | LinkEngineError | None] = {}
        for name, view in views.items():
            if not isinstance(view, GroupDescription):
                found[name] = view
            elif name in offsets:
                committed = offsets[name]
                found[name] = committed if isinstance(committed, LinkEngineError) else (view, committed)
        return found

    def _committed(self, cluster: Cluster, broker: int, names: Sequence[str]) -> Mapping[str, _Offsets | LinkEngineError]:
        return fetch_offsets(cluster, broker, names, topics={self.topic: self.partitions}) if names else {}


def _log_ends(
    cluster: Cluster, topic: str, view: TopicMetadata, failures: _Failures
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the log end offsets of a topic as far as its leaders return them, and why others are missing."""
    ends: dict[TopicPartition, int] = {}
    unread: list[str] = []
    for broker, partitions in view.by_leader().items():
        if broker < 0:
            unread.append(f"Partitions without a leader: {len(partitions)}. A broker is down. Bring it back.")
            continue
        if failures[broker]:
            unread.append(failures[broker][-1].message)
            continue
        try:
            results = list_offsets(cluster, broker, [(topic, partition) for partition in partitions], timestamp=LATEST)
        except LinkEngineError as error:
            unread.append(error.message)
            continue
        ends |= {place: offset for place, (error, offset) in results.items() if not error and offset >= 0}
        refused = Counter(error for error, _ in results.values() if error)
        unread += [
            BrokerError(error, f"The log end of some partitions ({count}) cannot be read").message
            for error, count in refused.items()
        ]
    return ends, unread


def _topic_group(
    listed: Group,
    found: _GroupOffsets | LinkEngineError | None,
    *,
    topic: str,
    ends: Mapping[TopicPartition, int],
) -> TopicGroup | None:
    """Return the row of a group; None if it has neither members nor committed offsets in the topic."""
    if found is None:
        return None
    if isinstance(found, LinkEngineError):
        return TopicGroup(group_id=listed.name, state=_UNKNOWN, type=_type_of(listed), error=found.message)
    group, committed = found
    if not committed and not any(place[0] == topic for member in group.members for place in member.assigned):
        return None
    # An offset beyond the log end is that of an earlier topic or of lost records: the lag is unknown, not 0.
    rows = [row for row in lags(group, committed, ends) if row.lag or row.current_offset == row.log_end_offset]
    known = [row.lag for row in rows if row.lag is not None]
    return TopicGroup(
        group_id=group.group_id,
        state=group.state,
        type=group.type,
        members=len(group.members),
        known=len(known),
        lag=sum(known) if known else None,
        max_lag=max(known, default=None),
    )


def _view_of(listed: Group, found: Described | LinkEngineError) -> GroupDescription | None:
    if not isinstance(found, LinkEngineError):
        return found
    return GroupDescription(
        group_id=listed.name,
        state=_UNKNOWN,
        type=_type_of(listed),
        is_simple=False,
        assignor="",
        coordinator=-1,
        error=found.message,
    )


def _type_of(listed: Group) -> str:
    return listed.kind.upper() or _UNKNOWN


def _lag(place: TopicPartition, offset: int, end: int | None, reader: MemberView | None) -> LagDescription:
    names = {} if reader is None else {"consumer_id": reader.consumer_id, "client_id": reader.client_id}
    instance = reader.instance_id if reader else None
    return LagDescription(
        topic=place[0], partition=place[1], current_offset=offset, log_end_offset=end, instance_id=instance, **names
    )


def _describe(cluster: Cluster, broker: int, names: Sequence[str]) -> dict[str, Described | LinkEngineError]:
    found = _describe_classic(cluster, broker, names)
    missing = [name for name, view in found.items() if view is None]
    if missing:
        found |= _describe_consumer(cluster, broker, missing)
    return {
        name: replace(view, coordinator=broker) if isinstance(view, GroupDescription) else view
        for name, view in found.items()
        if name in names
    }


def _describe_classic(cluster: Cluster, broker: int, names: Sequence[str]) -> dict[str, Described | LinkEngineError]:
    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeGroupsRequest.API_KEY, highest=5, lowest=4)
        return DescribeGroupsRequest(version=version, groups=list(names), include_authorized_operations=False)

    return cluster.call(broker, build, response=DescribeGroupsResponse, read=_read_classic)


def _read_classic(response: Any) -> dict[str, Described | LinkEngineError]:
    return {found.group_id: _classic(found) for found in response.groups}


def _classic(found: Any) -> Described | LinkEngineError:
    state = _state(found.group_state)
    if found.error_code in _NOT_THERE or (not found.error_code and state == _DEAD):
        return None
    if found.error_code:
        return _refused(found.group_id, found.error_code)
    if found.protocol_type not in _CONSUMER_PROTOCOLS:  # Kafka Connect and schema registries use groups, too
        return None
    return GroupDescription(
        group_id=found.group_id,
        state=state,
        type="CLASSIC",
        is_simple=not found.protocol_type,
        assignor=found.protocol_data or "",
        coordinator=-1,
        members=tuple(
            MemberView(
                consumer_id=member.member_id,
                client_id=member.client_id,
                instance_id=member.group_instance_id,
                assigned=_assigned(bytes(member.member_assignment or b"")),
            )
            for member in found.members
        ),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a ConsumerProtocolAssignment: version, then topics with their partitions. Empty if invalid.

    The group's leader writes it, and brokers do not validate it: every length and count is checked.
    """
    reader = Reader(memoryview(data))
    places: list[TopicPartition] = []
    try:
        reader.int16()  # version
        for _ in range(reader.length(INT32, each=_SMALLEST_TOPIC)):
            topic = reader.text()
            places += [(topic, reader.int32()) for _ in range(reader.length(INT32, each=INT32.size))]
    except UNREADABLE:
        return ()
    return tuple(sorted(places))


def _describe_consumer(cluster: Cluster, broker: int, names: Sequence[str]) -> dict[str, Described | LinkEngineError]:
    if not cluster.supports(broker, ConsumerGroupDescribeRequest.API_KEY):  # Kafka 3.6 and older
        return {}
    return cluster.call(
        broker,
        lambda _: ConsumerGroupDescribeRequest(names),
        response=ConsumerGroupDescribeResponse,
        read=_read_consumer,
    )


def _read_consumer(response: ConsumerGroupDescribeResponse) -> dict[str, Described | LinkEngineError]:
    found: dict[str, Described | LinkEngineError] = {}
    for error, view in response.groups:
        gone = error in _NOT_THERE or (not error and view.state == _DEAD)
        found[view.group_id] = None if gone else _refused(view.group_id, error) if error else view
    return found


@dataclass(frozen=True)
class _Header:
    correlation_id: int


class ConsumerGroupDescribeRequest:
    """ConsumerGroupDescribe version 0 (KIP-848), with the attributes that ``Connection.request`` uses of a request.

    Request: group ids, include authorized operations. Response: throttle time, groups; per group error code, error message,
    id, state, group epoch, assignment epoch, assignor, members, authorized operations; per member id, instance id, rack id,
    epoch, client id, client host, subscribed topics, subscribed pattern, assignment, target assignment; per assignment
    (topic id, topic name, partitions) of each topic. All in the compact encoding of flexible versions (KIP-482).
    """

    API_KEY = 69
    API_VERSION = 0
    name = "ConsumerGroupDescribeRequest"

    def __init__(self, names: Sequence[str]) -> None:
        """Create a request for these groups."""
        self._names, self._correlation_id = list(names), 0

    def with_header(self, *, correlation_id: int, client_id: str) -> None:
        """Set the correlation id; the client id is that of all requests of ``protocol``."""
        assert client_id
        self._correlation_id = correlation_id

    def encode(self, *, header: bool, framed: bool) -> bytes:
        """Return the frame."""
        assert header
        assert framed
        names = b"".join(map(compact_string, self._names))
        body = uvarint(len(self._names) + 1) + names + b"\x00" + NO_TAGS
        frame = request_frame(self.API_KEY, self.API_VERSION, correlation_id=self._correlation_id, body=[body])
        return b"".join(map(bytes, frame))


@dataclass(frozen=True)
class ConsumerGroupDescribeResponse:
    """The response to a ConsumerGroupDescribeRequest: (error code, group) of each group."""

    header: _Header
    groups: tuple[tuple[int, GroupDescription], ...]

    @classmethod
    def decode(cls, frame: bytes, *, version: int, header: bool) -> ConsumerGroupDescribeResponse:
        """Decode a response without its frame size. Raises one of UNREADABLE if it is invalid."""
        assert version == ConsumerGroupDescribeRequest.API_VERSION
        assert header
        reader = Reader(memoryview(frame), 0)
        correlation_id = reader.int32()
        skip_response_header(reader)
        reader.int32()  # throttle time
        groups = tuple(_read_group(reader) for _ in range(reader.compact_length()))
        return cls(header=_Header(correlation_id), groups=groups)


def _read_group(reader: Reader) -> tuple[int, GroupDescription]:
    error = reader.int16()
    reader.compact_text()  # error message
    name, state = reader.compact_text() or "", reader.compact_text() or ""
    reader.skip(2 * INT32.size)  # group epoch, assignment epoch
    assignor = reader.compact_text() or ""
    members = tuple(_read_member(reader) for _ in range(reader.compact_length()))
    reader.int32()  # authorized operations
    reader.tags()
    view = GroupDescription(
        group_id=name,
        state=_state(state),
        type="CONSUMER",
        is_simple=False,
        assignor=assignor,
        coordinator=-1,
        members=members,
    )
    return error, view


def _read_member(reader: Reader) -> MemberView:
    consumer_id, instance_id, _rack = reader.compact_text() or "", reader.compact_text(), reader.compact_text()
    reader.int32()  # member epoch
    client_id = reader.compact_text() or ""
    reader.compact_text()  # client host
    for _ in range(reader.compact_length()):
        reader.compact_text()  # subscribed topic
    reader.compact_text()  # subscribed pattern
    assigned, _target = _read_assignment(reader), _read_assignment(reader)
    reader.tags()
    return MemberView(consumer_id=consumer_id, client_id=client_id, instance_id=instance_id, assigned=assigned)


def _read_assignment(reader: Reader) -> tuple[TopicPartition, ...]:
    places: list[TopicPartition] = []
    for _ in range(reader.compact_length()):
        reader.skip(16)  # topic id
        topic = reader.compact_text() or ""
        places += [(topic, reader.int32()) for _ in range(reader.compact_length())]
        reader.tags()
    reader.tags()
    return tuple(sorted(places))


def _state(word: str) -> str:
    """Return Kafka's state as its REST API spells it: PreparingRebalance becomes PREPARING_REBALANCE."""
    return _WORD_START.sub("_", word).upper() or _UNKNOWN


def _refused(name: str, code: int) -> BrokerError:
    return BrokerError(code, f"Consumer group {quoted_name(name)} cannot be described")
