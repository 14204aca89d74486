"""How a link's source topics stand, as people read it: a word, the reason, the checks with their next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from console.presenters.looks import Family, Look
from console.presenters.mirrors import mirror_path
from console.presenters.states import MIRROR_LOOKS
from linkengine.domain.mirrorability import CheckCode, Standing, Verdict

STANDING_LOOKS: Mapping[Standing, Look] = MappingProxyType(
    {
        Standing.MIRRORED: Look(
            code=Standing.MIRRORED,
            label="Mirrored",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="The link has a mirror topic of it.",
        ),
        Standing.WAITING: Look(
            code=Standing.WAITING,
            label="Waiting",
            icon="hourglass-split",
            family=Family.BUSY,
            meaning="Nothing is in the way: the next run of auto-create makes its mirror topic.",
            next_step="Wait, or run AutoCreateMirror now.",
        ),
        Standing.NOT_MIRRORED: Look(
            code=Standing.NOT_MIRRORED,
            label="Not mirrored",
            icon="circle-half",
            family=Family.DONE,
            meaning="At least one of the checks below keeps it from being mirrored.",
        ),
    }
)
CHECK_LABELS: Mapping[CheckCode, str] = MappingProxyType(
    {
        CheckCode.SOURCE_TOPIC: "Source topic",
        CheckCode.INTERNAL_TOPIC: "Internal topic",
        CheckCode.AUTO_CREATE: "Auto-create",
        CheckCode.INCLUDED: "Included",
        CheckCode.NOT_EXCLUDED: "Not excluded",
        CheckCode.MIRROR_NAME: "Mirror's name",
        CheckCode.STOPPED_MIRROR: "Stopped mirror",
        CheckCode.RING: "Ring",
        CheckCode.CHAIN: "Chain",
        CheckCode.NAMESPACE: "Namespace",
        CheckCode.MIRRORED_ELSEWHERE: "Other links",
        CheckCode.NAME_FREE: "Name at the destination",
        CheckCode.LINK_STATE: "Link",
        CheckCode.LAST_TRY: "Last try",
    }
)
_PASSED = Look(code="PASSED", label="Fine", icon="check-circle-fill", family=Family.OK, meaning="")
_FAILED = Look(code="FAILED", label="In the way", icon="x-octagon-fill", family=Family.BAD, meaning="")
_NOTED = Look(code="NOTED", label="Failed, tried again", icon="exclamation-triangle-fill", family=Family.WARN, meaning="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One check on the page."""

    label: str
    look: Look
    finding: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopicRow:
    """One source topic of a list; ``reason`` is the first thing in its way."""

    name: str
    look: Look
    reason: str
    mirror: str
    mirror_path: str  # "" where there is no mirror
    mirror_look: Look | None


def source_topic_row(verdict: Verdict) -> SourceTopicRow:
    """Present one line."""
    failed = verdict.failed
    mirrored = verdict.standing is Standing.MIRRORED
    return SourceTopicRow(
        name=verdict.topic,
        look=STANDING_LOOKS[verdict.standing],
        reason=failed[0].finding if failed else "",
        mirror=verdict.mirror,
        mirror_path=mirror_path(verdict.mirror) if mirrored else "",
        mirror_look=MIRROR_LOOKS[verdict.mirror_state] if verdict.mirror_state else None,
    )


def check_rows(verdict: Verdict) -> Sequence[CheckRow]:
    """Present the checks, those in the way first."""
    rows = sorted(verdict.checks, key=lambda one: one.passed)
    return [
        CheckRow(
            label=CHECK_LABELS[one.code],
            look=_PASSED if one.passed else _FAILED if one.blocks else _NOTED,
            finding=one.finding,
            next_step=one.next_step,
        )
        for one in rows
    ]
