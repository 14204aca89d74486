"""View model of the failover readiness of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from console.presenters.badges import Badge, Family
from linkengine.domain.failover import Readiness, ReadyFact, ReadyState

READY_LOOKS: Mapping[ReadyState, Badge] = MappingProxyType(
    {
        ReadyState.READY: Badge(
            code="READY", label="Ready", icon="check-circle-fill", family=Family.OK, meaning="All facts allow a failover."
        ),
        ReadyState.UNKNOWN: Badge(
            code="UNKNOWN", label="Unknown", icon="question-circle", family=Family.WARN, meaning="A fact is unknown or too old."
        ),
        ReadyState.NOT_READY: Badge(
            code="NOT_READY",
            label="Not ready",
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning="A failover now would have a problem.",
        ),
    }
)
_ADVICE: Mapping[ReadyFact, str] = MappingProxyType(
    {
        ReadyFact.HEALTH: "See the reason for the health on the link's overview.",
        ReadyFact.DRILL: "Run a failover drill of all mirror topics.",
        ReadyFact.VERIFICATION: "Verify all mirror topics, and examine records that differ.",
        ReadyFact.RIGHTS: "Grant the permissions that the errors of the link, its tasks and its mirror topics name.",
        ReadyFact.GROUPS: "See the errors of consumer offset sync on the Tasks and Groups tabs.",
        ReadyFact.RETENTION: "Reduce the lag, and set retention.ms on the source topics to a longer time.",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessView:
    """The readiness of a link; ``gaps`` are the next steps for facts that are not ready."""

    look: Badge
    sentence: str
    gaps: Sequence[str]


def readiness_view(found: Readiness) -> ReadinessView:
    """Return the view of a readiness."""
    gaps = [_ADVICE[fact.fact] for fact in found.facts if fact.state is not ReadyState.READY]
    return ReadinessView(look=READY_LOOKS[found.state], sentence=found.sentence, gaps=gaps)
