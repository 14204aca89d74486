"""Sync of topic configs, consumer offsets and ACLs from a source to a destination."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from linkengine.domain.acls import Acl
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import ConfigChange, source_values
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import GroupOutcome, GroupReport, GroupStatus, GroupSync, quoted_name
from linkengine.domain.mirrorjobs import MirrorSync, MirrorSynced, RefusedStep
from linkengine.domain.plans import TopicDescription
from linkengine.domain.times import CONFIRM_AFTER_S
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.offsets import count_partitions
from linkengine.sync import groups
from linkengine.sync.groups import Following, Recall
from linkengine.sync.topics import (
    find_mirror,
    grow_mirror,
    holds_all,
    missing_mirror,
    observe_sources,
    plan_configs,
    restore_configs,
    stopped_error,
    was_stopped,
)

# --- topic configs -------------------------------------------------------------------------------------------------------
# The source's partition counts and configs are applied to mirrors.


_REFUSED = frozenset({ErrorCode.POLICY_VIOLATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR, ErrorCode.AUTHORIZATION_ERROR})
Outcome = MirrorSynced | LinkEngineError
StillMirrors = Callable[[str], bool]  # called with the mirror topic's name, right before anything is changed


def always(_: str) -> bool:
    """Return True: for callers whose mirrors no other task can stop at the same time."""
    return True


def sync_mirror(mirror: MirrorSync, *, still_mirrors: StillMirrors = always) -> MirrorSynced:
    """Apply partitions and configs of the source to a mirror once; about six requests.

    Raises SOURCE_TOPIC_MAY_BE_DELETED, SOURCE_TOPIC_ID_CHANGED, SOURCE_PARTITIONS_DECREASED, MIRROR_TOPIC_MISSING and
    MIRROR_WAS_STOPPED, which are permanent, and errors of either cluster, which are not.
    """
    (outcome,) = sync_mirrors([mirror], still_mirrors=still_mirrors)
    if isinstance(outcome, LinkEngineError):
        raise outcome
    error = outcome.growth_error or outcome.configs_error
    if error is not None:
        raise error
    return outcome


def sync_mirrors(
    mirrors: Sequence[MirrorSync], *, still_mirrors: StillMirrors = always, reread_after_s: float = CONFIRM_AFTER_S
) -> list[Outcome]:
    """Apply partitions and configs of the source to many mirrors of a link; return results or errors in order.

    Reading costs about six requests per 500 mirrors, applying one or two for each mirror that differs. Between reading and
    applying, a mirror may be stopped: ``still_mirrors`` returns False then, and the topic stays as it is. A mirror that cannot
    grow is synced with the partitions that it has, and a mirror whose source's configs cannot be read gets only its partitions:
    the records of a missing partition would not be copied, and no lag would show that. The result says why. Raises only errors
    that concern a whole cluster.

    Source configs that differ from those of the last run are read once more, together after a single wait: a stop applies them,
    and the retention or cleanup policy of a damaged response, or of a broker that has just started, would delete records.
    """
    source, destination = ClusterAdmin(mirrors[0].source), ClusterAdmin(mirrors[0].destination)
    topics = observe_sources(source, {mirror.source_topic: mirror.source_topic_id for mirror in mirrors})
    values = source.effective_configs_of([name for name, topic in topics.items() if isinstance(topic, TopicDescription)])
    doubtful = _unconfirmed(source, mirrors, values, reread_after_s=reread_after_s)
    here = {topic.name: topic for topic in destination.topics([mirror.mirror_topic for mirror in mirrors])}
    follow = partial(_follow, (source, destination), here=here, still_mirrors=still_mirrors)
    return [
        topic
        if isinstance(topic := topics[mirror.source_topic], LinkEngineError)
        else follow(mirror, topic, values=_values_of(mirror, values, doubtful=doubtful))
        for mirror in mirrors
    ]


def _values_of(
    mirror: MirrorSync, values: Mapping[str, Mapping[str, str]], *, doubtful: Collection[str]
) -> Mapping[str, str] | LinkEngineError:
    """Return the configs of a mirror's source topic, or why they cannot be applied."""
    if mirror.source_topic in doubtful:
        return _differing_error(mirror.source_topic)
    return values[mirror.source_topic] if mirror.source_topic in values else _unreadable_error(mirror)


def _unconfirmed(
    source: ClusterAdmin, mirrors: Sequence[MirrorSync], values: Mapping[str, Mapping[str, str]], *, reread_after_s: float
) -> set[str]:
    """Return the source topics whose configs have changed since the last run, and are different again at a second reading."""
    changed = {
        mirror.source_topic
        for mirror in mirrors
        if mirror.source_topic in values
        and source_values(values[mirror.source_topic], include=mirror.sync_include) != mirror.previous
    }
    if not changed:
        return changed
    time.sleep(reread_after_s)
    again = source.effective_configs_of(sorted(changed))
    return {topic for topic in changed if again.get(topic) != values[topic]}


def _follow(
    clusters: tuple[ClusterAdmin, ClusterAdmin],
    plan: MirrorSync,
    topic: TopicDescription,
    *,
    values: Mapping[str, str] | LinkEngineError,
    here: Mapping[str, TopicDescription],
    still_mirrors: StillMirrors,
) -> Outcome:
    source, destination = clusters
    try:
        name = plan.mirror_topic
        mirror = find_mirror(destination, name, topic_id=plan.mirror_topic_id, seen=here.get(name))
        if mirror is None:
            raise missing_mirror(name)
        count = mirror.partitions
        unchanged = MirrorSynced(partitions=count, source_partitions=count, source_configs=plan.previous, read=False)
        stopped = was_stopped(destination, mirror, guard=plan.guard)
        if (stopped or mirror.partitions < topic.partitions) and not still_mirrors(name):
            return unchanged
        if stopped:
            raise stopped_error(destination, mirror)
        recount = partial(count_partitions, source.address, topic.name)
        partitions, growth_error = _grow(destination, mirror, partitions=topic.partitions, recount=recount)
    except LinkEngineError as error:
        return error
    topic = replace(topic, partitions=max(topic.partitions, partitions))
    grown = replace(unchanged, partitions=partitions, source_partitions=topic.partitions, growth_error=growth_error)
    if isinstance(values, LinkEngineError):
        return replace(grown, configs_error=values)
    copied = partial(holds_all, source, destination, topic=topic, mirror=mirror)
    try:
        configured = _follow_configs(destination, plan, mirror, values=values, copied=copied, still_mirrors=still_mirrors)
    except LinkEngineError as error:
        return replace(grown, configs_error=error)
    if configured is None:
        return unchanged
    return replace(configured, partitions=partitions, source_partitions=topic.partitions, growth_error=growth_error)


def _follow_configs(
    destination: ClusterAdmin,
    plan: MirrorSync,
    mirror: TopicDescription,
    *,
    values: Mapping[str, str],
    copied: Callable[[], bool],
    still_mirrors: StillMirrors,
) -> MirrorSynced | None:
    """Apply the source's configs; return None if the mirror has been stopped since."""
    wanted = source_values(values, include=plan.sync_include)
    change, edits = plan_configs(mirror, plan, source_configs=wanted, copied=copied)
    if change and not still_mirrors(mirror.name):
        return None
    refused = _change_configs(destination, mirror.name, change)
    return MirrorSynced(
        partitions=mirror.partitions,
        source_partitions=mirror.partitions,
        source_configs=wanted,
        refused=refused,
        changed=tuple(name for name in change.names if name not in {step.name for step in refused}),
        reverted=tuple(edit for edit in edits if edit.name not in {step.name for step in refused}),
    )


def _change_configs(destination: ClusterAdmin, topic: str, change: ConfigChange) -> tuple[RefusedStep, ...]:
    """Change the configs of a mirror as far as the destination accepts them; return what it refuses."""
    try:
        destination.change_configs(topic, change)
    except LinkEngineError as error:
        if error.code not in _REFUSED:
            raise
        return restore_configs(destination, {topic: change}).get(topic, ())
    return ()


def _grow(
    destination: ClusterAdmin, mirror: TopicDescription, *, partitions: int, recount: Callable[[], int]
) -> tuple[int, LinkEngineError | None]:
    """Add the missing partitions; return how many the mirror has then, and why it has too few. Raise if it has too many."""
    try:
        return grow_mirror(destination, mirror, partitions=partitions, recount=recount), None
    except LinkEngineError as error:
        if error.code == ErrorCode.SOURCE_PARTITIONS_DECREASED:
            raise
        return mirror.partitions, error


def _differing_error(topic: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Two readings of the configs of source topic {topic!r} differ. They are applied once two are equal. Retrying.",
    )


def _unreadable_error(plan: MirrorSync) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.AUTHORIZATION_ERROR,
        f"User {plan.source.sasl_username!r} may not read the configs of source topic {plan.source_topic!r}. Grant it "
        "DESCRIBE_CONFIGS on the topic.",
    )


# --- consumer offsets ----------------------------------------------------------------------------------------------------
# Also lists the groups for which a promotion still waits.


_NAMED_AT_MOST = 5  # groups listed in a message


def sync_groups(
    *, source: ClusterAddress, destination: ClusterAddress, sync: GroupSync, recall: Recall, following: Following
) -> GroupReport:
    """Sync a batch of groups; ``recall`` returns what earlier runs did with the groups of the batch. Safe to repeat.

    ``following`` returns which mirrors' groups are synced at that time: a mirror that is stopped during the run is left as it
    is. Raises only errors that concern a whole cluster; a group that fails has an outcome of its own.
    """
    return groups.sync_groups(ClusterAdmin(source), ClusterAdmin(destination), sync, recall=recall, following=following)


def group_blockers(report: GroupReport) -> list[tuple[ErrorCode, str]]:
    """Return, once per code, why the destination's groups do not equal the source's after a run over all groups."""
    found: dict[ErrorCode, str] = {}
    for code, message in _blockers(report):
        found[code] = f"{found[code]} {message}" if code in found else message
    return list(found.items())


def _blockers(report: GroupReport) -> Iterator[tuple[ErrorCode, str]]:
    unread = [group for group in report.groups if group.status is GroupStatus.FAILED and not group.partitions]
    unlike = [group for group in report.groups if group.status is GroupStatus.FAILED or not _is_settled(group)]
    yield from _unequal([group for group in unlike if group not in unread])
    if unread:
        message = f"{_named(unread)} cannot be compared with the source. {unread[0].message}"
        yield ErrorCode.WAITING_FOR_GROUPS, message
    if report.incomplete:
        message = f"Some consumer groups of the source may be missing here. {report.incomplete}"
        yield ErrorCode.WAITING_FOR_GROUPS, message


def _is_settled(group: GroupOutcome) -> bool:
    return all(partition.is_settled for partition in group.partitions)


def _unequal(unequal: Iterable[GroupOutcome]) -> Iterator[tuple[ErrorCode, str]]:
    in_use = [group for group in unequal if group.status is GroupStatus.IN_USE]
    others = [group for group in unequal if group.status is not GroupStatus.IN_USE]
    if in_use:
        yield (
            ErrorCode.CONSUMER_GROUP_IN_USE_ERROR,
            (
                f"{_named(in_use)} {_have(in_use)} active members on the destination and other offsets than on the source. "
                "Stop these consumers, or exclude the groups in consumer.offset.group.filters if they have moved permanently."
            ),
        )
    if others:
        reason = next((group.message for group in others if group.message), "")
        yield (
            ErrorCode.WAITING_FOR_GROUPS,
            (
                f"{_named(others)} {_have(others)} other offsets than on the source. {reason} Set them to the "
                "source's offsets, or exclude the groups in consumer.offset.group.filters."
            ),
        )


def _named(groups_: list[GroupOutcome]) -> str:
    more = f" and {len(groups_) - _NAMED_AT_MOST} more" if len(groups_) > _NAMED_AT_MOST else ""
    names = ", ".join(quoted_name(group.destination_name) for group in groups_[:_NAMED_AT_MOST])
    return f"Consumer group{'s' if len(groups_) > 1 else ''} {names}{more}"


def _have(groups_: list[GroupOutcome]) -> str:
    return "have" if len(groups_) > 1 else "has"


# --- ACLs ----------------------------------------------------------------------------------------------------------------
# ``linkengine.domain.acls`` decides what changes.


def list_acls(admin: ClusterAdmin) -> set[Acl]:
    """Return every ACL. Raise SECURITY_DISABLED_ERROR without an authorizer: an unknown list is not an empty list."""
    if not admin.has_authorizer():
        raise LinkEngineError(
            ErrorCode.SECURITY_DISABLED_ERROR,
            f"The cluster at {admin.address.bootstrap_servers} enforces no ACLs, so none can be synced. Set "
            "authorizer.class.name on its brokers, or set acl.sync.enable to false.",
        )
    return admin.acls()


def read_acls(address: ClusterAddress) -> set[Acl]:
    """Return every ACL of a cluster; needs DESCRIBE on it. Raises SECURITY_DISABLED_ERROR if it has no authorizer."""
    return list_acls(ClusterAdmin(address))


def read_acls_by_broker(address: ClusterAddress) -> list[set[Acl]]:
    """Return the ACLs that each broker shows: what none shows is deleted. Raises TIMEOUT_ERROR if a broker is silent."""
    return ClusterAdmin(address).acls_by_broker()


def change_acls(
    destination: ClusterAddress, *, create: Sequence[Acl] = (), delete: Sequence[Acl] = ()
) -> dict[Acl, LinkEngineError]:
    """Create and delete ACLs, and return the refused ACLs; needs ALTER on the cluster. Safe to repeat.

    DENY rules are created first and deleted last, so access never widens.
    """
    admin = ClusterAdmin(destination)
    steps = (
        (admin.create_acls, [acl for acl in create if acl.permission == "DENY"]),
        (admin.delete_acls, [acl for acl in delete if acl.permission != "DENY"]),
        (admin.create_acls, [acl for acl in create if acl.permission != "DENY"]),
        (admin.delete_acls, [acl for acl in delete if acl.permission == "DENY"]),
    )
    return dict(chain.from_iterable(change(acls).items() for change, acls in steps))
