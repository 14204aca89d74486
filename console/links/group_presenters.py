"""View models of consumer groups and ACLs of a link, with the display of each status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from django.utils.translation import gettext, gettext_noop, ngettext

from console.models import ClampedOffset, GroupOffset, SyncedAcl, SyncedGroup
from console.web import numbers
from console.web.badges import Badge, Family
from console.web.numbers import Moment, moment
from linkengine.domain.acls import AclStatus
from linkengine.domain.groups import GroupStatus, OffsetOutcome

PARTITIONS_SHOWN = 20  # of each group; the REST API lists all
NAME_SHOWN = 250  # characters; the REST API and the CSV file have the whole name
_G, _A = GroupStatus, AclStatus


def _badge(code: str, label: str, icon: str, *, family: Family, words: tuple[str, str]) -> Badge:
    return Badge(code=code, label=label, icon=icon, family=family, meaning=words[0], next_step=words[1])


GROUP_BADGES: Mapping[GroupStatus, Badge] = MappingProxyType(
    {
        GroupStatus(badge.code): badge
        for badge in (
            _badge(
                _G.SYNCED,
                gettext_noop("Synced"),
                "check-circle-fill",
                family=Family.OK,
                words=(gettext_noop("Its offsets are synced."), ""),
            ),
            _badge(
                _G.PARTLY_SYNCED,
                gettext_noop("Partly synced"),
                "circle-half",
                family=Family.WARN,
                words=(
                    gettext_noop("Some partitions are not synced."),
                    gettext_noop("See the reason for the partitions and what to do."),
                ),
            ),
            _badge(
                _G.IN_USE,
                gettext_noop("In use on destination"),
                "person-circle",
                family=Family.WARN,
                words=(
                    gettext_noop("Consumers on the destination use this group."),
                    gettext_noop("Exclude it in the filters when they have moved permanently."),
                ),
            ),
            _badge(
                _G.FAILED,
                gettext_noop("Failed"),
                "x-octagon-fill",
                family=Family.BAD,
                words=(
                    gettext_noop("Its offsets could not be read or written."),
                    gettext_noop("Fix the cause. It is retried automatically."),
                ),
            ),
            _badge(
                _G.WAITING,
                gettext_noop("Pending"),
                "hourglass-split",
                family=Family.BUSY,
                words=(gettext_noop("It has not been synced yet."), gettext_noop("Wait for the next run.")),
            ),
            _badge(
                _G.NO_MIRROR_TOPIC,
                gettext_noop("No mirror topic"),
                "link-45deg",
                family=Family.DONE,
                words=(gettext_noop("It reads no mirrored topic."), gettext_noop("Add mirror topics for the topics it reads.")),
            ),
            _badge(
                _G.EXCLUDED,
                gettext_noop("Excluded"),
                "stop-circle-fill",
                family=Family.DONE,
                words=(
                    gettext_noop("It does not match the filters."),
                    gettext_noop("To include it, change consumer.offset.group.filters."),
                ),
            ),
            _badge(
                _G.UNSUPPORTED_TYPE,
                gettext_noop("Unsupported type"),
                "info-circle",
                family=Family.DONE,
                words=(
                    gettext_noop("Offsets of this group type cannot be synced."),
                    gettext_noop("The group starts without offsets on the destination."),
                ),
            ),
            _badge(
                _G.NOT_LISTED,
                gettext_noop("Not listed"),
                "search",
                family=Family.IDLE,
                words=(
                    gettext_noop("The source no longer lists it."),
                    gettext_noop("It is removed from this list after one day."),
                ),
            ),
        )
    }
)
ACL_BADGES: Mapping[AclStatus, Badge] = MappingProxyType(
    {
        AclStatus(badge.code): badge
        for badge in (
            _badge(
                _A.CREATED,
                gettext_noop("Synced"),
                "check-circle-fill",
                family=Family.OK,
                words=(gettext_noop("Removed when the source removes it."), ""),
            ),
            _badge(
                _A.SHARED,
                gettext_noop("Shared"),
                "collection",
                family=Family.OK,
                words=(gettext_noop("Another link also syncs it."), gettext_noop("Removed when no source has it.")),
            ),
            _badge(
                _A.ALREADY_THERE,
                gettext_noop("Already exists"),
                "person-circle",
                family=Family.IDLE,
                words=(
                    gettext_noop("The destination had this ACL before."),
                    gettext_noop("Never removed by the link. Remove it manually if not needed."),
                ),
            ),
            _badge(
                _A.OUT_OF_FILTER,
                gettext_noop("No longer selected"),
                "stop-circle-fill",
                family=Family.IDLE,
                words=(
                    gettext_noop("It no longer matches the filters and was kept."),
                    gettext_noop("Remove it manually if not needed."),
                ),
            ),
            _badge(
                _A.GUARD,
                gettext_noop("Not synced"),
                "shield-lock",
                family=Family.DONE,
                words=(
                    gettext_noop("Same as the ACL that makes mirrors read-only."),
                    gettext_noop("To deny writes after a promotion, add it manually."),
                ),
            ),
            _badge(
                _A.CAME_FROM_HERE,
                gettext_noop("From this cluster"),
                "arrow-left-right",
                family=Family.DONE,
                words=(gettext_noop("A link in the other direction created it."), gettext_noop("No action needed.")),
            ),
            _badge(
                _A.UNSUPPORTED,
                gettext_noop("Unsupported"),
                "info-circle",
                family=Family.WARN,
                words=(
                    gettext_noop("This kind of ACL cannot be synced."),
                    gettext_noop("Create it manually on the destination."),
                ),
            ),
            _badge(
                _A.FAILED,
                gettext_noop("Rejected"),
                "x-octagon-fill",
                family=Family.BAD,
                words=(
                    gettext_noop("The destination rejected it."),
                    gettext_noop("Fix the cause. It is retried automatically."),
                ),
            ),
        )
    }
)
_OUTCOMES: Mapping[str, str] = MappingProxyType(
    {
        OffsetOutcome.EQUAL: gettext_noop("Equal"),
        OffsetOutcome.ADVANCED: gettext_noop("Advanced"),
        OffsetOutcome.REWOUND: gettext_noop("Rewound"),
        OffsetOutcome.AHEAD: gettext_noop("Ahead"),
        OffsetOutcome.CHANGED_HERE: gettext_noop("Changed here"),
        OffsetOutcome.IN_USE: gettext_noop("In use"),
        OffsetOutcome.FAILED: gettext_noop("Failed"),
    }
)
if set(GROUP_BADGES) != set(GroupStatus) or set(ACL_BADGES) != set(AclStatus) or set(_OUTCOMES) != set(OffsetOutcome):
    raise AssertionError("each status and outcome needs a display")


@dataclass(frozen=True, slots=True, kw_only=True)
class LagText:
    """The lag of a consumer group over several partitions. An unknown lag is a dash or a lower bound, never 0."""

    total: str
    largest: str  # of a partition
    unknown: str  # in how many partitions the lag is unknown; "" if in none


def lag_text(*, total: int | None, largest: int | None, known: int, partitions: int) -> LagText:
    """Return the display of the sum and the largest of the lags that are known, which is in ``known`` partitions."""
    unknown = partitions - known
    in_some = ngettext(
        "unknown in %(unknown)s of %(total)s partition", "unknown in %(unknown)s of %(total)s partitions", partitions
    )
    return LagText(
        total=numbers.worst_lag(total, unknown=unknown),
        largest=numbers.worst_lag(largest, unknown=unknown),
        unknown=in_some % {"unknown": numbers.count(unknown), "total": numbers.count(partitions)} if unknown else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """The offsets of a group on a partition."""

    topic: str
    partition: int
    source: str
    lag: str
    here: str
    target: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A consumer group."""

    number: int
    name: str
    destination_name: str  # "" if it is the same
    kind: str
    badge: Badge
    message: str
    checked: Moment | None
    lag: LagText | None  # None without offsets
    lag_at: Moment | None  # when the offsets were read; None if no lag is known
    offsets: Sequence[OffsetRow]
    more_offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRow:
    """An ACL."""

    resource: str
    principal: str
    access: str
    badge: Badge
    message: str
    is_conflict: bool
    since: Moment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedRow:
    """A consumer offset that a promotion or failover clamped."""

    group: str
    partition: int
    source: str
    before: str
    after: str
    message: str


def readable_name(name: str) -> str:
    """Return the name of a group for a page: not empty, without control characters, and truncated to ``NAME_SHOWN``."""
    if not name:
        return gettext("(empty name)")
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name[:NAME_SHOWN])
    if len(name) <= NAME_SHOWN:
        return text
    return gettext("%(text)s… (%(count)s characters)") % {"text": text, "count": numbers.count(len(name))}


def group_row(group: SyncedGroup, offsets: Sequence[GroupOffset], *, lags: Sequence[int | None], now: datetime) -> GroupRow:
    """Create the row of a group with its partitions; ``lags`` belong to the offsets."""
    known = [lag for lag in lags if lag is not None]
    total, largest = sum(known) if known else None, max(known, default=None)
    return GroupRow(
        number=group.pk,
        name=readable_name(group.name),
        destination_name=readable_name(group.destination_name) if group.destination_name != group.name else "",
        kind=group.kind,
        badge=GROUP_BADGES[GroupStatus(group.status)],
        message=group.message,
        checked=moment(group.looked_at, now=now),
        lag=lag_text(total=total, largest=largest, known=len(known), partitions=len(offsets)) if offsets else None,
        lag_at=moment(group.looked_at, now=now) if known else None,
        offsets=[_offset_row(offset, lag) for offset, lag in zip(offsets[:PARTITIONS_SHOWN], lags, strict=False)],
        more_offsets=max(0, len(offsets) - PARTITIONS_SHOWN),
    )


def acl_row(acl: SyncedAcl, *, now: datetime) -> AclRow:
    """Create the row of an ACL."""
    pattern = "*" if acl.pattern_type == "PREFIXED" else ""
    return AclRow(
        resource=f"{acl.resource_type.replace('_', ' ').capitalize()} {acl.resource_name}{pattern}",
        principal=acl.principal
        if acl.host == "*"
        else gettext("%(principal)s from %(host)s") % {"principal": acl.principal, "host": acl.host},
        access=f"{acl.permission} {acl.operation}",
        badge=ACL_BADGES[AclStatus(acl.status)],
        message=acl.message,
        is_conflict=acl.is_conflict,
        since=moment(acl.since, now=now),
    )


def clamped_row(offset: ClampedOffset) -> ClampedRow:
    """Create the row of a clamped offset."""
    return ClampedRow(
        group=readable_name(offset.group),
        partition=offset.partition,
        source=numbers.count(offset.source_offset),
        before=numbers.count(offset.before),
        after=numbers.count(offset.after),
        message=offset.message,
    )


def _offset_row(offset: GroupOffset, lag: int | None) -> OffsetRow:
    return OffsetRow(
        topic=offset.mirror.name,
        partition=offset.partition,
        source=numbers.count(offset.source_offset),
        lag=numbers.count(lag),
        here=numbers.count(offset.destination_offset),
        target=numbers.count(offset.target),
        outcome=gettext(_OUTCOMES.get(offset.outcome, offset.outcome)),
    )
