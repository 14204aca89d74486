"""Look at consumer groups and how far they are behind; functions over a session. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError

from linkengine.domain.clusterviews import GroupView, LagView, MemberView
from linkengine.kafka.admin_errors import translated
from linkengine.kafka.admin_offsets import OffsetKind, offsets
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession

BATCH = 100  # groups per request; more are described in turns
COORDINATOR_TIMEOUT_S = 10.0  # coordinators move, or are made when the first group of a cluster is asked for
_LOOK_EVERY_S = 0.2
_MOVING = frozenset({KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS})
_GONE = frozenset({KafkaError.GROUP_ID_NOT_FOUND})
_STATES = {"PREPARING_REBALANCING": "PREPARING_REBALANCE", "COMPLETING_REBALANCING": "COMPLETING_REBALANCE"}
_DEAD = "DEAD"  # how brokers describe a group that is not there


def groups(session: AdminSession) -> list[GroupView]:
    """Describe every consumer group the principal may see, by name."""
    found = session.one(
        lambda client: client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), what="list consumer groups"
    )
    names = sorted(one.group_id for one in found.valid)
    return [view for start in range(0, len(names), BATCH) for view in described(session, names[start : start + BATCH])]


def described(session: AdminSession, names: Iterable[str]) -> list[GroupView]:
    """Describe the named groups as far as they exist."""
    wanted = list(names)
    if not wanted:
        return []
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while True:
        found, failures = session.settle(
            lambda client: client.describe_consumer_groups(wanted, request_timeout=REQUEST_TIMEOUT_S),
            what="describe consumer groups",
        )
        moving = any(error.code() in _MOVING for error in failures.values())
        if not moving or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_EVERY_S)
    for error in failures.values():
        if error.code() not in _GONE:
            raise translated(error, what="describe consumer groups")
    views = [_group(found[name]) for name in wanted if name in found]
    return [view for view in views if view.state != _DEAD]


def lags(session: AdminSession, group: GroupView) -> list[LagView]:
    """Compare what a group has committed with the ends of the partitions, which are None where they cannot be seen."""
    wanted = [ConsumerGroupTopicPartitions(group.group_id)]
    found = session.all(
        lambda client: client.list_consumer_group_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S),
        what=f"read the offsets of consumer group {group.group_id!r}",
    )[group.group_id]
    committed = {(one.topic, one.partition): one.offset for one in found.topic_partitions or () if one.offset >= 0}
    ends = offsets(session, sorted(committed), OffsetKind.END)
    readers = {place: member for member in group.members for place in member.assigned}
    return [_lag(place, committed[place], ends.get(place), readers.get(place)) for place in sorted(committed)]


def _lag(place: tuple[str, int], offset: int, end: int | None, reader: MemberView | None) -> LagView:
    names = {} if reader is None else {"consumer_id": reader.consumer_id, "client_id": reader.client_id}
    instance = reader.instance_id if reader else None
    return LagView(topic=place[0], partition=place[1], current_offset=offset, log_end_offset=end, instance_id=instance, **names)


def _group(found: Any) -> GroupView:
    state = found.state.name
    return GroupView(
        group_id=found.group_id,
        state=_STATES.get(state, state),
        type=getattr(found.type, "name", "UNKNOWN"),
        is_simple=bool(found.is_simple_consumer_group),
        assignor=found.partition_assignor or "",
        coordinator=found.coordinator.id if found.coordinator is not None else -1,
        members=tuple(_member(one) for one in found.members),
    )


def _member(found: Any) -> MemberView:
    places = found.assignment.topic_partitions if found.assignment else ()
    return MemberView(
        consumer_id=found.member_id,
        client_id=found.client_id,
        instance_id=found.group_instance_id,
        assigned=tuple(sorted((one.topic, one.partition) for one in places or ())),
    )
