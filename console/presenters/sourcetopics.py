"""View models of the source topics of a link: status, reason and the checks with their next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from console.presenters.badges import Badge, Family
from console.presenters.states import MIRROR_LOOKS
from linkengine.domain.mirrorability import CheckCode, Standing, Verdict

STANDING_LOOKS: Mapping[Standing, Badge] = MappingProxyType(
    {
        Standing.MIRRORED: Badge(
            code=Standing.MIRRORED,
            label="Mirrored",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="The link has a mirror topic for it.",
        ),
        Standing.WAITING: Badge(
            code=Standing.WAITING,
            label="Pending",
            icon="hourglass-split",
            family=Family.BUSY,
            meaning="The next auto-create run creates its mirror topic.",
            next_step="Wait, or run the task AutoCreateMirror now.",
        ),
        Standing.NOT_MIRRORED: Badge(
            code=Standing.NOT_MIRRORED,
            label="Not mirrored",
            icon="circle-half",
            family=Family.DONE,
            meaning="At least one check prevents it from being mirrored.",
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
        CheckCode.MIRROR_NAME: "Mirror topic name",
        CheckCode.STOPPED_MIRROR: "Stopped mirror",
        CheckCode.RING: "Replication loop",
        CheckCode.CHAIN: "Chained mirrors",
        CheckCode.NAMESPACE: "Namespace",
        CheckCode.MIRRORED_ELSEWHERE: "Other links",
        CheckCode.NAME_FREE: "Name on destination",
        CheckCode.LINK_STATE: "Link state",
        CheckCode.LAST_TRY: "Last attempt",
    }
)
# Failed checks with which a mirror topic cannot be added; the others are of auto-create or only warn.
_PREVENTING = frozenset(
    {
        CheckCode.SOURCE_TOPIC,
        CheckCode.INTERNAL_TOPIC,
        CheckCode.MIRROR_NAME,
        CheckCode.STOPPED_MIRROR,
        CheckCode.RING,
        CheckCode.NAMESPACE,
        CheckCode.MIRRORED_ELSEWHERE,
        CheckCode.NAME_FREE,
        CheckCode.LINK_STATE,
    }
)
_PASSED = Badge(code="PASSED", label="Passed", icon="check-circle-fill", family=Family.OK, meaning="")
_FAILED = Badge(code="FAILED", label="Blocking", icon="x-octagon-fill", family=Family.BAD, meaning="")
_NOTED = Badge(code="NOTED", label="Failed, will be retried", icon="exclamation-triangle-fill", family=Family.WARN, meaning="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """A check of a source topic."""

    label: str
    look: Badge
    finding: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopicRow:
    """A source topic. ``reason`` is the finding of the first failed check."""

    name: str
    look: Badge
    reason: str
    mirror: str
    is_mirrored: bool
    mirror_look: Badge | None
    mirrorable: bool  # a mirror topic can be added, whatever the auto-create filters say


def source_topic_row(verdict: Verdict) -> SourceTopicRow:
    """Create the row of a source topic."""
    failed = verdict.failed
    mirrored = verdict.standing is Standing.MIRRORED
    return SourceTopicRow(
        name=verdict.topic,
        look=STANDING_LOOKS[verdict.standing],
        reason=failed[0].finding if failed else "",
        mirror=verdict.mirror,
        is_mirrored=mirrored,
        mirror_look=MIRROR_LOOKS[verdict.mirror_state] if verdict.mirror_state else None,
        mirrorable=is_mirrorable(verdict),
    )


def is_mirrorable(verdict: Verdict) -> bool:
    """Return whether a mirror topic can be added for the topic, whatever the auto-create filters include."""
    return verdict.standing is not Standing.MIRRORED and not any(check.code in _PREVENTING for check in verdict.failed)


def check_rows(verdict: Verdict) -> Sequence[CheckRow]:
    """Return the checks, failed ones first."""
    checks = sorted(verdict.checks, key=lambda check: check.passed)
    return [
        CheckRow(
            label=CHECK_LABELS[check.code],
            look=_PASSED if check.passed else _FAILED if check.blocks else _NOTED,
            finding=check.finding,
            next_step=check.next_step,
        )
        for check in checks
    ]
