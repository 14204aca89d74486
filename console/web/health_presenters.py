"""Display of health: badge, one sentence with the reason, and the next step. The only source of these texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.web import numbers
from console.web.badges import Badge, Family
from console.web.errors import help_for
from linkengine.domain.health import Health, Reason, Verdict, cluster_health

if TYPE_CHECKING:
    from console.links.health_queries import LinkHealth
    from console.models import ClusterLink


def _badge(health: Health, label: str, icon: str, family: Family, *, meaning: str) -> Badge:
    return Badge(code=health, label=label, icon=icon, family=family, meaning=meaning)


_BADGES = (
    _badge(
        Health.NOT_COPYING,
        "Not copying",
        "x-octagon-fill",
        Family.BAD,
        meaning="Records that should be copied are not copied. The data loss window grows until the cause is removed.",
    ),
    _badge(
        Health.UNKNOWN,
        "Unknown",
        "question-circle",
        Family.WARN,
        meaning="There is no recent information, so copying may have stopped.",
    ),
    _badge(
        Health.DEGRADED,
        "Degraded",
        "exclamation-triangle-fill",
        Family.WARN,
        meaning="Records are copied, but there is an alarm, an error, a failing task, or lag beyond the objective.",
    ),
    _badge(Health.CHANGING, "Changing", "arrow-repeat", Family.BUSY, meaning="A requested transition is in progress."),
    _badge(Health.PAUSED, "Paused", "pause-circle-fill", Family.IDLE, meaning="A user paused copying."),
    _badge(
        Health.HEALTHY,
        "Healthy",
        "check-circle-fill",
        Family.OK,
        meaning="Every partition was reported as copied within the last 15 seconds, and there are no errors or alarms.",
    ),
    _badge(Health.STOPPED, "Stopped", "stop-circle-fill", Family.DONE, meaning="Mirroring has stopped. The topic is writable."),
    _badge(Health.EMPTY, "Nothing to copy", "dash-circle", Family.DONE, meaning="There are no mirror topics."),
)
HEALTH_BADGES: Mapping[Health, Badge] = MappingProxyType({Health(badge.code): badge for badge in _BADGES})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """Badge, reason and next step."""

    badge: Badge
    reason: str  # code
    sentence: str
    next_step: str = ""
    needs_attention: bool = False


def _partitions(verdict: Verdict) -> str:
    return numbers.plural(verdict.partitions, "partition") if verdict.partitions else "the mirror topic"


def _have(verdict: Verdict) -> str:
    return "has" if verdict.partitions == 1 else "have"


def _codes(verdict: Verdict) -> str:
    return ", ".join(dict.fromkeys(verdict.codes)) or "an error"


def _age(verdict: Verdict) -> str:
    return numbers.duration(verdict.age_ms)


def _silence(verdict: Verdict) -> str:
    if not verdict.partitions:
        return f"No copy worker has reported for {_age(verdict)}."
    return f"No copy worker has reported on {_partitions(verdict)} for {_age(verdict)}."


_CHECK_ENGINE = (
    "Check that the Celery worker, Redis and Spark are running. Copying then resumes where it stopped; only records that the "
    "source deletes until then (retention, compaction) are lost."
)
_READ_ERRORS = "Read the error for the cause and what to do."
# reason -> (sentence, next step). The next step of a code comes from the table of errors.
_TEXTS: Mapping[Reason, tuple[str | Callable[[Verdict], str], str]] = MappingProxyType(
    {
        Reason.MIRROR_FAILED: (
            lambda v: f"Mirroring failed: {_codes(v)}.",
            "Fail over to keep the copied records, or delete the mirror topic and create it again.",
        ),
        Reason.LINK_FAILED: (
            "The source rejects the link's credentials, permissions or configuration.",
            "Edit the link's configuration. Copying then resumes automatically.",
        ),
        Reason.SOURCE_UNAVAILABLE: (
            "No broker of the source cluster responds.",
            "Check the source cluster and the network. In a disaster, fail over.",
        ),
        Reason.NO_COPY_WORKER: ("No copy worker can run.", _CHECK_ENGINE),
        Reason.ENGINE_ERROR: ("The copy engine reports an error, although all partitions are reported.", _CHECK_ENGINE),
        Reason.SILENT: (_silence, _CHECK_ENGINE),
        Reason.BLOCKED: (
            lambda v: f"Copying of {_partitions(v)} fails: a cluster is unreachable or rejects the link.",
            "Check the partitions table for the error, then the clusters and the network.",
        ),
        Reason.STALLED: (
            lambda v: f"No record is copied, although {_partitions(v)} {_have(v)} been behind for {_age(v)}.",
            "Check the load of both clusters, their quotas and the link's throughput limit.",
        ),
        Reason.SETUP_FAILING: (lambda v: f"The mirror topic cannot be set up: {_codes(v)}.", _READ_ERRORS),
        Reason.REPORT_OVERDUE: (
            _silence,
            "Wait for a minute: another copy worker takes over. Then check worker, Redis and Spark.",
        ),
        Reason.WAITING: (
            lambda v: f"{_partitions(v).capitalize()} {'waits' if v.partitions == 1 else 'wait'} for a copy worker.",
            "Check that copy workers run and have free task slots.",
        ),
        Reason.LAG_UNKNOWN: (
            lambda v: f"The lag of {_partitions(v)} is unknown.",
            "Check that the source cluster responds.",
        ),
        Reason.NOT_OBSERVED: ("Nothing has been observed yet.", _CHECK_ENGINE),
        Reason.ALARM: (lambda v: f"Alarm: {_codes(v)}.", "Read the alarm. It stays until you end it."),
        Reason.ERROR: (lambda v: f"There are errors: {_codes(v)}.", _READ_ERRORS),
        Reason.TASK_ERROR: (
            lambda v: f"A recurring task of the link fails for this topic: {_codes(v)}.",
            "Read the error of the task.",
        ),
        Reason.LAG_BEYOND_OBJECTIVE: (
            lambda v: f"The time lag ({'unknown' if v.age_ms is None else _age(v)}) exceeds the link's RPO objective.",
            "Check the load of both clusters and the throughput limit, or change link.rpo.objective.ms.",
        ),
        Reason.TRANSITION_LATE: (
            lambda v: f"The transition has not ended for {_age(v)}.",
            "Check the errors and the worker's log. A failover ends a transition.",
        ),
        Reason.TASKS_FAILING: ("A recurring task of the link had errors in its last run.", "Open the Tasks tab of the link."),
        Reason.CLUSTER_UNREACHABLE: ("The last connection to the cluster failed.", "Check the network and the credentials."),
        Reason.CLUSTER_NOT_CHECKED: ("The cluster has not been checked yet.", "Select Refresh on the cluster's page."),
        Reason.DELETING: ("It is being deleted.", ""),
        Reason.SETTING_UP: ("The mirror topic is being set up. Copying starts afterwards.", ""),
        Reason.STOPPING: ("Mirroring is being stopped. The topic then becomes writable.", ""),
        Reason.REVERSING: ("The direction is being reversed.", ""),
        Reason.STARTING: ("Copying is starting.", ""),
        Reason.FIRST_COPY: ("The first copy is in progress. A failover now would lose records.", ""),
        Reason.PAUSED: (
            "Copying is paused by a user.",
            "Resume it before the retention of the source deletes records that are not copied yet.",
        ),
        Reason.STOPPED: ("Mirroring has stopped. The topic is writable.", ""),
        Reason.COPYING: ("All partitions are copied.", ""),
        Reason.NO_MIRRORS: ("The link has no mirror topics.", "Add mirror topics."),
        Reason.SOURCE_SIDE: ("The mirror topics are on the destination's side of the link.", ""),
        Reason.NO_LINKS: ("There are no cluster links.", ""),
    }
)
REASONS = tuple(_TEXTS)


def health_view(verdict: Verdict, *, detail: str = "", share: str = "") -> HealthView:
    """Return the display of a verdict. ``detail`` is the known cause; ``share`` says how many mirror topics are concerned."""
    text, next_step = _TEXTS[verdict.reason]
    sentence = text if isinstance(text, str) else text(verdict)
    if verdict.codes and verdict.reason is not Reason.MIRROR_FAILED:
        next_step = help_for(verdict.codes[0]).fix or next_step
    return HealthView(
        badge=HEALTH_BADGES[verdict.health],
        reason=verdict.reason,
        sentence=" ".join(part for part in (share, sentence, detail) if part),
        next_step=next_step,
        needs_attention=verdict.needs_attention,
    )


def link_health_view(health: LinkHealth, link: ClusterLink) -> HealthView:
    """Return the display of a link's health, with the number of mirror topics that share it."""
    return health_view(health.verdict, detail=_cause(health.verdict, link), share=_share(health))


def mirror_health_view(verdict: Verdict, link: ClusterLink, *, task_error: str = "") -> HealthView:
    """Return the display of a mirror's health; ``task_error`` is the message of a recurring task that names it."""
    detail = task_error if verdict.reason is Reason.TASK_ERROR else _cause(verdict, link)
    return health_view(verdict, detail=detail)


def _cause(verdict: Verdict, link: ClusterLink) -> str:
    """Return the cause from the error stored with the link; "" if there is none."""
    if verdict.reason in {Reason.NO_COPY_WORKER, Reason.ENGINE_ERROR}:
        return link.engine_error
    return link.error_message if verdict.reason in {Reason.LINK_FAILED, Reason.SOURCE_UNAVAILABLE} else ""


def cluster_health_view(links: Sequence[tuple[str, LinkHealth]], *, reachable: bool | None) -> HealthView:
    """Return the display of a cluster's health; ``links`` are (name, health), ``reachable`` is None without a check."""
    verdict = cluster_health(reachable=reachable, links=[health.verdict for _, health in links])
    name = next((name for name, health in links if health.verdict is verdict), "")
    copied = verdict.health in {Health.HEALTHY, Health.EMPTY}
    return health_view(verdict, share="" if copied or not name else f"Link {name}:")


def severity(view: HealthView) -> int:
    """Return a sort key: 0 is the worst health."""
    return list(Health).index(Health(view.badge.code))


def _share(health: LinkHealth) -> str:
    worst, total = health.verdict, len(health.mirrors)
    verdicts = [mirror.verdict for mirror in health.mirrors.values()]
    number = sum((verdict.health, verdict.reason) == (worst.health, worst.reason) for verdict in verdicts)
    if not number or worst.health is Health.HEALTHY:
        return ""
    return f"{numbers.count(number)} of {numbers.plural(total, 'mirror topic')}:"
