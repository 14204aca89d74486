"""Consumer groups and ACLs of a link as people read them: a word, an icon and a next step for every status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from console.models import ClampedOffset, GroupOffset, SyncedAcl, SyncedGroup
from console.presenters import numbers
from console.presenters.looks import Family, Look
from console.presenters.numbers import Moment, moment
from linkengine.domain.acls import AclStatus
from linkengine.domain.groups import GroupStatus

PARTITIONS_SHOWN = 20  # of one group; REST lists all
NAME_SHOWN = 250  # characters of a name; REST and the CSV file have all of it
_G, _A = GroupStatus, AclStatus


def _look(code: str, label: str, icon: str, *, family: Family, words: tuple[str, str]) -> Look:
    return Look(code=code, label=label, icon=icon, family=family, meaning=words[0], next_step=words[1])


GROUP_LOOKS: Mapping[GroupStatus, Look] = MappingProxyType(
    {
        GroupStatus(one.code): one
        for one in (
            _look(_G.SYNCED, "Follows", "check-circle-fill", family=Family.OK, words=("Its offsets follow the source.", "")),
            _look(
                _G.PARTLY_SYNCED,
                "Partly",
                "circle-half",
                family=Family.WARN,
                words=("Some partitions are left alone.", "The reason says which, and when they follow again."),
            ),
            _look(
                _G.IN_USE,
                "In use here",
                "person-circle",
                family=Family.WARN,
                words=(
                    "Consumers work with it on the destination.",
                    "Exclude it in the filters once they have moved for good.",
                ),
            ),
            _look(
                _G.FAILED,
                "Failed",
                "x-octagon-fill",
                family=Family.BAD,
                words=("Its offsets could not be read or written.", "Mend the cause; it is tried again by itself."),
            ),
            _look(
                _G.WAITING,
                "Waiting",
                "hourglass-split",
                family=Family.BUSY,
                words=("Its turn has not come yet.", "The next run looks at it."),
            ),
            _look(
                _G.NO_MIRROR_TOPIC,
                "No mirror topic",
                "link-45deg",
                family=Family.DONE,
                words=("It reads no topic that is mirrored.", "Mirror the topics it reads."),
            ),
            _look(
                _G.EXCLUDED,
                "Excluded",
                "stop-circle-fill",
                family=Family.DONE,
                words=("The filters do not choose it.", "Change consumer.offset.group.filters to include it."),
            ),
            _look(
                _G.UNSUPPORTED_TYPE,
                "Other type",
                "info-circle",
                family=Family.DONE,
                words=("Its offsets are kept in another way.", "Nothing to do; it starts anew on the destination."),
            ),
            _look(
                _G.NOT_LISTED,
                "Not listed",
                "search",
                family=Family.IDLE,
                words=("The source does not list it any more.", "Forgotten after a day."),
            ),
        )
    }
)
ACL_LOOKS: Mapping[AclStatus, Look] = MappingProxyType(
    {
        AclStatus(one.code): one
        for one in (
            _look(
                _A.CREATED,
                "Carried over",
                "check-circle-fill",
                family=Family.OK,
                words=("Goes when the source removes it.", ""),
            ),
            _look(
                _A.SHARED,
                "Shared",
                "collection",
                family=Family.OK,
                words=("Another link wants it too.", "Goes when no source has it."),
            ),
            _look(
                _A.ALREADY_THERE,
                "Was here before",
                "person-circle",
                family=Family.IDLE,
                words=("A local ACL says the same.", "Never removed by the link; remove it by hand if nobody needs it."),
            ),
            _look(
                _A.OUT_OF_FILTER,
                "Out of filter",
                "stop-circle-fill",
                family=Family.IDLE,
                words=("No longer chosen; left in place.", "Remove it by hand if nobody needs it."),
            ),
            _look(
                _A.GUARD,
                "Not carried over",
                "shield-lock",
                family=Family.DONE,
                words=("Reserved for read-only mirrors.", "Deny writes after the promotion by hand if you want it."),
            ),
            _look(
                _A.CAME_FROM_HERE,
                "Came from here",
                "arrow-left-right",
                family=Family.DONE,
                words=("A link in the other direction made it.", "Nothing to do."),
            ),
            _look(
                _A.UNSUPPORTED,
                "Unknown kind",
                "info-circle",
                family=Family.WARN,
                words=("It cannot be written again as it is.", "Create it on the destination by hand."),
            ),
            _look(
                _A.FAILED,
                "Refused",
                "x-octagon-fill",
                family=Family.BAD,
                words=("The destination refused it.", "Mend the cause; it is tried again by itself."),
            ),
        )
    }
)
if set(GROUP_LOOKS) != set(GroupStatus) or set(ACL_LOOKS) != set(AclStatus):
    raise AssertionError("every status needs a look")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """One partition of a group."""

    topic: str
    partition: int
    source: str
    here: str
    target: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group on the page."""

    number: int
    name: str
    destination_name: str  # "" where it is the same
    kind: str
    look: Look
    message: str
    looked: Moment | None
    offsets: Sequence[OffsetRow]
    more_offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRow:
    """One ACL on the page."""

    resource: str
    principal: str
    access: str
    look: Look
    message: str
    is_conflict: bool
    since: Moment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedRow:
    """One offset that a stop has limited."""

    group: str
    partition: int
    source: str
    before: str
    after: str
    message: str


def readable_name(name: str) -> str:
    """Return the name of a group for a page: never empty, without control characters, and cut where it is very long."""
    if not name:
        return "(empty name)"
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name[:NAME_SHOWN])
    return text if len(name) <= NAME_SHOWN else f"{text}… ({len(name):,} characters)"


def group_row(group: SyncedGroup, offsets: Sequence[GroupOffset], *, now: datetime) -> GroupRow:
    """Present a group with its partitions."""
    return GroupRow(
        number=group.pk,
        name=readable_name(group.name),
        destination_name=readable_name(group.destination_name) if group.destination_name != group.name else "",
        kind=group.kind,
        look=GROUP_LOOKS[GroupStatus(group.status)],
        message=group.message,
        looked=moment(group.looked_at, now=now),
        offsets=[_offset_row(one) for one in offsets[:PARTITIONS_SHOWN]],
        more_offsets=max(0, len(offsets) - PARTITIONS_SHOWN),
    )


def acl_row(acl: SyncedAcl, *, now: datetime) -> AclRow:
    """Present a line of the ledger."""
    pattern = "*" if acl.pattern_type == "PREFIXED" else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return AclRow(
        resource=f"{acl.resource_type.replace('_', ' ').capitalize()} {acl.resource_name}{pattern}",
        principal=f"{acl.principal}{host}",
        access=f"{acl.permission} {acl.operation}",
        look=ACL_LOOKS[AclStatus(acl.status)],
        message=acl.message,
        is_conflict=acl.is_conflict,
        since=moment(acl.since, now=now),
    )


def clamped_row(one: ClampedOffset) -> ClampedRow:
    """Present what a stop did to a group."""
    return ClampedRow(
        group=readable_name(one.group),
        partition=one.partition,
        source=numbers.count(one.source_offset),
        before=numbers.count(one.before),
        after=numbers.count(one.after),
        message=one.message,
    )


def _offset_row(one: GroupOffset) -> OffsetRow:
    return OffsetRow(
        topic=one.mirror.name,
        partition=one.partition,
        source=numbers.count(one.source_offset),
        here=numbers.count(one.destination_offset),
        target=numbers.count(one.target),
        outcome=one.outcome.replace("_", " ").capitalize(),
    )
