"""View model of the migration gate on the page of a mirror."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.mirrors.migration_gate import GATED, GateDoubt, gate_doubt
from console.presenters.badges import Badge, Family
from console.presenters.numbers import Moment, moment
from linkengine.domain.gates import GateCheckName, GateCheckState

if TYPE_CHECKING:
    from console.models import GateRun

GATE_LOOKS: Mapping[str, Badge] = MappingProxyType(
    {
        "RUNNING": Badge(
            code="RUNNING",
            label="Checking",
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning="All records are being compared. The other checks follow.",
        ),
        "GREEN": Badge(
            code="GREEN",
            label="Passed",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="All checks passed. The topic can be promoted.",
            next_step="Stop the producers on the source, then promote.",
        ),
        "RED": Badge(
            code="RED",
            label="Failed",
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning="At least one check failed. After a promotion, data or settings would be missing or different.",
            next_step="Fix the failed checks and run the checks again, or override the gate with a reason.",
        ),
        "OVERRIDDEN": Badge(
            code="OVERRIDDEN",
            label="Overridden",
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning="A user overrode the gate without passed checks.",
        ),
        GateDoubt.TOO_OLD: Badge(
            code=GateDoubt.TOO_OLD,
            label="Expired",
            icon="clock-history",
            family=Family.WARN,
            meaning="The last results are too old. The gate is closed again.",
            next_step="Run the checks again.",
        ),
        GateDoubt.REFUTED: Badge(
            code=GateDoubt.REFUTED,
            label="Invalidated",
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning="Since the last run, different, lost or missed deleted records were found. The gate is closed again.",
            next_step="Fix the cause and run the checks again, or override the gate with a reason.",
        ),
        GateDoubt.OUTLIVED: Badge(
            code=GateDoubt.OUTLIVED,
            label="Obsolete",
            icon="clock-history",
            family=Family.WARN,
            meaning="Since the last run, the topic became a mirror again or moved to another source. The gate is closed.",
            next_step="Run the checks again.",
        ),
    }
)
_CHECK_LOOKS: Mapping[GateCheckState, tuple[str, str, Family]] = MappingProxyType(
    {
        GateCheckState.PASSED: ("check-circle-fill", "passed", Family.OK),
        GateCheckState.FAILED: ("x-octagon-fill", "failed", Family.BAD),
        GateCheckState.NOT_APPLICABLE: ("info-circle", "not applicable", Family.IDLE),
    }
)
_NAMES: Mapping[GateCheckName, str] = MappingProxyType(
    {
        GateCheckName.DATA_VERIFIED: "Data verified",
        GateCheckName.NOTHING_LOST: "No losses",
        GateCheckName.NO_LAG: "No lag",
        GateCheckName.CONFIGS_EQUAL: "Partitions and configs in sync",
        GateCheckName.GROUPS_SYNCED: "Consumer offsets synced",
        GateCheckName.ACLS_SYNCED: "ACLs synced",
        GateCheckName.CANARY_READ: "Readable by a consumer",
    }
)
if set(_NAMES) != set(GateCheckName) or set(_CHECK_LOOKS) != set(GateCheckState):
    raise AssertionError("each check needs a label")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """A check of the gate."""

    name: str
    icon: str
    word: str
    family: Family
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The newest run of the gate."""

    look: Badge
    live: bool
    at: Moment | None
    by: str
    reason: str
    checks: Sequence[CheckView]


def gate_view(run: GateRun | None, *, now: datetime) -> GateView | None:
    """Return the view of a run, None for None. An outdated result is shown as such while the mirror can still be promoted."""
    if run is None:
        return None
    doubt = gate_doubt(run, now=now) if run.mirror.state in GATED else None
    return GateView(
        look=GATE_LOOKS[doubt or run.status],
        live=run.status == "RUNNING",
        at=moment(run.finished_at or run.requested_at, now=now),
        by=run.requested_by,
        reason=run.reason,
        checks=[_check(row) for row in run.checks],
    )


def _check(row: Mapping[str, str]) -> CheckView:
    icon, word, family = _CHECK_LOOKS[GateCheckState(row["state"])]
    return CheckView(name=_NAMES[GateCheckName(row["name"])], icon=icon, word=word, family=family, detail=row["detail"])
