"""Read and administer topics, ACLs, consumer groups and brokers of a cluster. Not specific to links.

The caller checks permissions and whether a topic is a mirror, and passes the names of mirrors whose guards must stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import (
    AclRule,
    BrokerDescription,
    ConfigView,
    GroupDescription,
    GroupList,
    HeldReplica,
    LagDescription,
    PartitionDescription,
    ReassignmentDescription,
    ResetOffset,
    TimedOffset,
    TopicGroups,
)
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Committed, quoted_name
from linkengine.domain.plans import TopicDescription
from linkengine.kafka import admin_acls, admin_topics, single_reads, view_groups, views
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.admin_groups import GroupInUseError
from linkengine.kafka.admin_session import AdminSession
from linkengine.kafka.cluster import Cluster

VISIBLE_TIMEOUT_S = 10.0  # brokers show a change within a second; loaded brokers need longer
_POLL_S = 0.05
LOOKUP_S = 12.0  # budget of a lookup by time; the user's request times out after 30 s
GROUPS_S = 8.0  # budget of the groups of a topic after they were listed, which takes up to 15 s while a broker is silent
MOST_GROUPS = 2_000  # examined for a topic, in 20 batches
_GUARDED = frozenset({"READ", "WRITE"})


def show_topic(address: ClusterAddress, topic: str) -> TopicDescription:
    """Describe a topic; raise UNKNOWN_TOPIC_OR_PARTITION_ERROR if there is none."""
    return ClusterAdmin(address).describe(topic)


def topic_rights(address: ClusterAddress, topic: str) -> list[str]:
    """Return what the principal of the address may do with a topic, in Kafka's words."""
    return sorted(ClusterAdmin(address).rights(topic))


def topic_partitions(address: ClusterAddress, topic: str) -> list[PartitionDescription]:
    """Return the partitions of a topic with their replicas."""
    return views.topic_partitions(AdminSession(address), topic)


def topic_configs(address: ClusterAddress, topic: str) -> list[ConfigView]:
    """Return all configs of a topic."""
    return views.topic_configs(AdminSession(address), topic)


def list_brokers(address: ClusterAddress) -> list[BrokerDescription]:
    """Return the brokers that are running."""
    return views.brokers(AdminSession(address))


def broker_configs(address: ClusterAddress, broker: int | None = None) -> list[ConfigView]:
    """Return all configs of a broker; without a broker, the cluster-wide dynamic configs."""
    session = AdminSession(address)
    return views.common_configs(session) if broker is None else views.broker_configs(session, broker)


def broker_replicas(address: ClusterAddress, broker: int) -> list[HeldReplica]:
    """Return the replicas that a broker holds."""
    return views.replicas(AdminSession(address), broker)


def list_reassignments(address: ClusterAddress, topic: str | None = None) -> list[ReassignmentDescription]:
    """Return the partitions that are being reassigned, of a topic or of all topics."""
    return views.reassignments(address, topic)


def create_topic(
    address: ClusterAddress,
    topic: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> TopicDescription | None:
    """Create a topic and describe it; return None for ``validate_only``. None stands for the cluster's default."""
    admin_topics.create_or_validate(
        AdminSession(address),
        topic,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=configs or {},
        validate_only=validate_only,
    )
    if validate_only:
        return None
    admin = ClusterAdmin(address)
    admin.wait_ready(topic, partitions=partitions or 1)
    return admin.describe(topic)


def delete_topic(address: ClusterAddress, topic: str) -> bool:
    """Delete a topic, records included, and wait until it is gone; return False if there was none."""
    return ClusterAdmin(address).delete_topic(topic)


def grow_topic(address: ClusterAddress, topic: str, *, partitions: int) -> TopicDescription:
    """Increase the number of partitions and describe the topic; raise INVALID_REQUEST_ERROR if it would not grow."""
    admin = ClusterAdmin(address)
    admin.add_partitions(topic, total=partitions)
    return admin.describe(topic)


def alter_topic_configs(
    address: ClusterAddress, topic: str, *, values: Mapping[str, str], deletions: Sequence[str], validate_only: bool = False
) -> None:
    """Set and delete configs of a topic in a single request, or validate them only."""
    admin = ClusterAdmin(address)
    admin.describe(topic)  # brokers return a less clear error for the configs of an unknown topic
    change = ConfigChange(values=dict(values), deletions=tuple(deletions))
    if validate_only:
        admin_topics.check_configs(AdminSession(address), topic, change)
    else:
        admin.change_configs(topic, change)


def list_acls(address: ClusterAddress, wanted: AclRule) -> list[AclRule]:
    """Return the ACLs that a filter matches."""
    return admin_acls.matching(AdminSession(address), wanted)


def create_acls(address: ClusterAddress, rules: Sequence[AclRule]) -> None:
    """Create ACLs and wait until the brokers show them; those that exist stay."""
    session = AdminSession(address)
    admin_acls.create_rules(session, rules)
    _wait_until(lambda: all(admin_acls.matching(session, rule) for rule in rules), what="the new ACLs are not visible")


def delete_acls(address: ClusterAddress, wanted: AclRule, *, guarded: Collection[str]) -> list[AclRule]:
    """Delete the ACLs that a filter matches, wait until they are gone, and return them.

    Raises ILLEGAL_STATE if the guard of a mirror in ``guarded`` is among them.
    """
    session = AdminSession(address)
    topics = frozenset(guarded)
    for rule in admin_acls.matching(session, wanted) if topics else ():
        if _is_guard(rule) and rule.resource_name in topics:
            raise LinkEngineError(
                ErrorCode.ILLEGAL_STATE,
                f"DENY {rule.operation} for {rule.principal} keeps mirror topic {rule.resource_name!r} read-only. Narrow the "
                "filter, or stop the mirror with promote or failover, which removes the ACL.",
            )
    deleted = admin_acls.delete_rules(session, wanted)
    _wait_until(lambda: not admin_acls.matching(session, wanted), what="the deleted ACLs are still visible")
    return deleted


def list_groups(address: ClusterAddress) -> GroupList:
    """Describe every consumer group the principal may see; a group that cannot be described is listed with the reason."""
    with closing(Cluster(address)) as cluster:
        groups, incomplete = view_groups.groups(cluster)
    return GroupList(groups=tuple(groups), incomplete=incomplete)


def show_group(address: ClusterAddress, group_id: str) -> GroupDescription | None:
    """Describe a consumer group; None if there is none. Raises if it cannot be described."""
    with closing(Cluster(address)) as cluster:
        found = view_groups.described(cluster, [group_id])[group_id]
    if isinstance(found, LinkEngineError):
        raise found
    return found


def group_lags(address: ClusterAddress, group_id: str) -> list[LagDescription] | None:
    """Return the lag of a consumer group by partition; None if there is no such group."""
    group = show_group(address, group_id)
    if group is None:
        return None
    admin = ClusterAdmin(address)
    committed, failures = admin.committed([group_id])
    if group_id in failures:
        raise failures[group_id]
    return view_groups.lags(group, committed[group_id], admin.many_offsets(sorted(committed[group_id]), OffsetKind.END))


def topic_groups(address: ClusterAddress, topic: str) -> TopicGroups:
    """Return the consumer groups of a topic with their lag; of a cluster with many groups, only the first are examined."""
    with closing(Cluster(address)) as cluster:
        return view_groups.of_topic(cluster, topic, most=MOST_GROUPS, budget_s=GROUPS_S)


def offsets_for_time(
    address: ClusterAddress, topic: str, timestamp_ms: int, *, positions: Sequence[tuple[int, int]] = ()
) -> list[TimedOffset]:
    """Return, per partition, the first record that is not older than a given time; fillers of a mirror do not count.

    ``positions`` (partition, offset) say where to continue a search that exceeded its budget.
    """
    return single_reads.offsets_for_time(address, topic, timestamp_ms, positions=dict(positions), budget_s=LOOKUP_S)


def reset_group(
    address: ClusterAddress, topic: str, *, group_id: str, offsets: Sequence[tuple[int, int]], execute: bool
) -> list[ResetOffset]:
    """Set the offsets of a group without members on a topic; return them before and after.

    Without ``execute`` nothing is changed. Raises ILLEGAL_STATE if the group has members, INVALID_REQUEST_ERROR for an offset
    outside the log.
    """
    admin, wanted = ClusterAdmin(address), {(topic, partition): offset for partition, offset in offsets}
    group = show_group(address, group_id)
    if group is not None and group.members:
        raise _in_use(group_id)
    starts, ends = admin.many_offsets(wanted, OffsetKind.START), admin.many_offsets(wanted, OffsetKind.END)
    for place, offset in wanted.items():
        if not starts.get(place, 0) <= offset <= ends.get(place, -1):
            raise LinkEngineError(
                ErrorCode.INVALID_REQUEST_ERROR,
                f"Partition {place[1]} of topic {topic!r} has no offset {offset}: it holds {starts.get(place, 'unknown')} to "
                f"{ends.get(place, 'unknown')}.",
            )
    found, failures = admin.committed([group_id])
    if group_id in failures:
        raise failures[group_id]
    present = found[group_id]
    commits = {place: Committed(offset=offset) for place, offset in wanted.items()}
    refused = admin.commit({group_id: commits})[group_id] if execute and commits else {}
    if any(isinstance(error, GroupInUseError) for error in refused.values()):
        raise _in_use(group_id)
    return [
        ResetOffset(
            partition=place[1],
            before=present[place].offset if place in present else None,
            after=offset,
            is_written=execute and refused.get(place) is None,
            message=error.message if (error := refused.get(place)) else "",
        )
        for place, offset in sorted(wanted.items())
    ]


def _in_use(group_id: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.ILLEGAL_STATE,
        f"Consumer group {quoted_name(group_id)} has active members, so its offsets cannot be reset. Stop its consumers first.",
    )


def _wait_until(visible: Callable[[], bool], *, what: str) -> None:
    """Wait until the brokers show what the controller has confirmed; they apply its log with a delay."""
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    while not visible():
        if time.monotonic() > deadline:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"After {VISIBLE_TIMEOUT_S:.0f} s {what}. Check again later.")
        time.sleep(_POLL_S)


def _is_guard(rule: AclRule) -> bool:
    literal = rule.resource_type == "TOPIC" and rule.pattern_type == "LITERAL"
    everybody = rule.principal == "User:*" and rule.host == "*"
    return literal and everybody and rule.permission == "DENY" and rule.operation in _GUARDED
