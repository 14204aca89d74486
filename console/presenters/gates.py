"""The migration gate as the mirror's page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.gatepolicies import GATED, GateDoubt, gate_doubt
from console.presenters.looks import Family, Look
from console.presenters.numbers import Moment, moment
from linkengine.domain.gates import GateCheckName, GateCheckState

if TYPE_CHECKING:
    from console.models import GateRun

GATE_LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "RUNNING": Look(
            code="RUNNING",
            label="Checking",
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning="Every record is being compared; the other checks follow.",
        ),
        "GREEN": Look(
            code="GREEN",
            label="Green",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="Nothing speaks against promoting this topic.",
            next_step="Stop the writers at the source, then promote.",
        ),
        "RED": Look(
            code="RED",
            label="Red",
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning="Something would be missing or different after a promotion.",
            next_step="Mend what failed and run the gate again, or override it with a reason.",
        ),
        "OVERRIDDEN": Look(
            code="OVERRIDDEN",
            label="Overridden",
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning="A person opened the gate without a green run.",
        ),
        GateDoubt.TOO_OLD: Look(
            code=GateDoubt.TOO_OLD,
            label="Too old",
            icon="clock-history",
            family=Family.WARN,
            meaning="What the checks saw was true then, and may not be now: the gate is closed again.",
            next_step="Run checks again.",
        ),
        GateDoubt.REFUTED: Look(
            code=GateDoubt.REFUTED,
            label="Refuted",
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning="Since then records were found that differ, were lost or were deleted unseen: the gate is closed again.",
            next_step="Mend what was found and run checks again, or override the gate with a reason.",
        ),
        GateDoubt.OUTLIVED: Look(
            code=GateDoubt.OUTLIVED,
            label="Outlived",
            icon="clock-history",
            family=Family.WARN,
            meaning="The topic became a mirror again since then, or moved to another source: the gate is closed.",
            next_step="Run checks again.",
        ),
    }
)
_CHECK_LOOKS: Mapping[GateCheckState, tuple[str, str, Family]] = MappingProxyType(
    {
        GateCheckState.PASSED: ("check-circle-fill", "passed", Family.OK),
        GateCheckState.FAILED: ("x-octagon-fill", "failed", Family.BAD),
        GateCheckState.NOT_APPLICABLE: ("info-circle", "not part of this link", Family.IDLE),
    }
)
_NAMES: Mapping[GateCheckName, str] = MappingProxyType(
    {
        GateCheckName.DATA_VERIFIED: "Every record compared",
        GateCheckName.NOTHING_LOST: "Nothing lost on the way",
        GateCheckName.NO_LAG: "No lag",
        GateCheckName.CONFIGS_EQUAL: "Partitions and configs equal",
        GateCheckName.GROUPS_SYNCED: "Consumer groups carried over",
        GateCheckName.ACLS_SYNCED: "ACLs carried over",
        GateCheckName.CANARY_READ: "A consumer can read it",
    }
)
if set(_NAMES) != set(GateCheckName) or set(_CHECK_LOOKS) != set(GateCheckState):
    raise AssertionError("every check needs its words")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """One line of the checklist."""

    name: str
    icon: str
    word: str
    family: Family
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The newest run."""

    look: Look
    live: bool
    at: Moment | None
    by: str
    reason: str
    checks: Sequence[CheckView]


def gate_view(run: GateRun | None, *, now: datetime) -> GateView | None:
    """Present a run; while its mirror may be promoted, one that is believed no more says so instead of what it was."""
    if run is None:
        return None
    doubt = gate_doubt(run, now=now) if run.mirror.state in GATED else None
    return GateView(
        look=GATE_LOOKS[doubt or run.status],
        live=run.status == "RUNNING",
        at=moment(run.finished_at or run.requested_at, now=now),
        by=run.requested_by,
        reason=run.reason,
        checks=[_check(one) for one in run.checks],
    )


def _check(one: Mapping[str, str]) -> CheckView:
    icon, word, family = _CHECK_LOOKS[GateCheckState(one["state"])]
    return CheckView(name=_NAMES[GateCheckName(one["name"])], icon=icon, word=word, family=family, detail=one["detail"])
