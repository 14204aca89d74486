"""Carry offsets of consumer groups over, and say which of them a promotion still waits for."""

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
    """Carry one batch of groups over; ``recall`` tells what earlier runs did with the groups of the batch. Safe to repeat.

    ``following`` tells which mirrors groups follow by now: one that is stopped meanwhile is left as it is. Raises only what
    keeps us from a cluster as a whole; a group that fails is an outcome of its own.
    """
    return groups.sync_groups(ClusterAdmin(source), ClusterAdmin(destination), sync, recall=recall, following=following)


def group_blockers(report: GroupReport) -> list[tuple[ErrorCode, str]]:
    """List, once per code, what keeps the destination's groups from being equal to the source's after a run over all groups."""
    found: dict[ErrorCode, str] = {}
    for code, message in _blockers(report):
        found[code] = f"{found[code]} {message}" if code in found else message
    return list(found.items())


def _blockers(report: GroupReport) -> Iterator[tuple[ErrorCode, str]]:
    unread = [one for one in report.groups if one.status is GroupStatus.FAILED and not one.partitions]
    unlike = [one for one in report.groups if one.status is GroupStatus.FAILED or not all(p.is_settled for p in one.partitions)]
    yield from _unequal([one for one in unlike if one not in unread])
    if unread:
        message = f"{_named(unread)} cannot be compared with the source. {unread[0].message}"
        yield ErrorCode.WAITING_FOR_GROUPS, message
    if report.incomplete:
        message = f"Not every consumer group of the source can be followed. {report.incomplete}"
        yield ErrorCode.WAITING_FOR_GROUPS, message


def _unequal(unequal: Iterable[GroupOutcome]) -> Iterator[tuple[ErrorCode, str]]:
    in_use = [one for one in unequal if one.status is GroupStatus.IN_USE]
    others = [one for one in unequal if one.status is not GroupStatus.IN_USE]
    if in_use:
        yield (
            ErrorCode.CONSUMER_GROUP_IN_USE_ERROR,
            (
                f"{_named(in_use)} {_have(in_use)} active members on the destination and other offsets than on the source. "
                "Stop these consumers, or exclude the groups in consumer.offset.group.filters if they have moved for good."
            ),
        )
    if others:
        reason = next((one.message for one in others if one.message), "")
        yield (
            ErrorCode.WAITING_FOR_GROUPS,
            (
                f"{_named(others)} {_have(others)} other offsets than on the source. {reason} Set them to the "
                "source's offsets, or exclude the groups in consumer.offset.group.filters."
            ),
        )


def _named(groups_: list[GroupOutcome]) -> str:
    more = f" and {len(groups_) - _NAMED_AT_MOST} more" if len(groups_) > _NAMED_AT_MOST else ""
    names = ", ".join(shown(one.destination_name) for one in groups_[:_NAMED_AT_MOST])
    return f"Consumer group{'s' if len(groups_) > 1 else ''} {names}{more}"


def _have(groups_: list[GroupOutcome]) -> str:
    return "have" if len(groups_) > 1 else "has"
