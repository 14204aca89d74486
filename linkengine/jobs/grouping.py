"""Consumer offset sync, and which groups a promotion still waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode
from linkengine.domain.groupplans import GroupOutcome, GroupReport, GroupSync
from linkengine.domain.groups import GroupStatus, shown
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync import groups
from linkengine.sync.groups import Following, Recall

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
    names = ", ".join(shown(group.destination_name) for group in groups_[:_NAMED_AT_MOST])
    return f"Consumer group{'s' if len(groups_) > 1 else ''} {names}{more}"


def _have(groups_: list[GroupOutcome]) -> str:
    return "have" if len(groups_) > 1 else "has"
