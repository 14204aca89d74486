"""Display of health: badge, one sentence with the reason, and the next step. The only source of these texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.utils.translation import gettext, gettext_noop, ngettext

from console.web import numbers
from console.web.badges import Badge, Family
from console.web.errors import help_for
from linkengine.domain.health import SEVERITY, Health, HealthStatus, Reason, cluster_health, worst

if TYPE_CHECKING:
    from console.links.health_queries import LinkHealth
    from console.models import ClusterLink


def _badge(health: Health, label: str, icon: str, family: Family, *, meaning: str) -> Badge:
    return Badge(code=health, label=label, icon=icon, family=family, meaning=meaning)


_BADGES = (
    _badge(
        Health.NOT_COPYING,
        gettext_noop("Not copying"),
        "x-octagon-fill",
        Family.BAD,
        meaning=gettext_noop(
            "Records that should be copied are not copied. The data loss window grows until the cause is removed."
        ),
    ),
    _badge(
        Health.UNKNOWN,
        gettext_noop("Unknown"),
        "question-circle",
        Family.WARN,
        meaning=gettext_noop("There is no recent information, so copying may have stopped."),
    ),
    _badge(
        Health.DEGRADED,
        gettext_noop("Degraded"),
        "exclamation-triangle-fill",
        Family.WARN,
        meaning=gettext_noop(
            "Records are copied, but there is an alarm, an error, a failing task, or lag beyond the objective."
        ),
    ),
    _badge(
        Health.CHANGING,
        gettext_noop("Changing"),
        "arrow-repeat",
        Family.BUSY,
        meaning=gettext_noop("A requested transition is in progress."),
    ),
    _badge(
        Health.PAUSED, gettext_noop("Paused"), "pause-circle-fill", Family.IDLE, meaning=gettext_noop("A user paused copying.")
    ),
    _badge(
        Health.HEALTHY,
        gettext_noop("Healthy"),
        "check-circle-fill",
        Family.OK,
        meaning=gettext_noop(
            "Every partition was reported as copied within the last 15 seconds, and there are no errors or alarms."
        ),
    ),
    _badge(
        Health.STOPPED,
        gettext_noop("Stopped"),
        "stop-circle-fill",
        Family.DONE,
        meaning=gettext_noop("Mirroring has stopped. The topic is writable."),
    ),
    _badge(
        Health.EMPTY,
        gettext_noop("Nothing to copy"),
        "dash-circle",
        Family.DONE,
        meaning=gettext_noop("There are no mirror topics."),
    ),
)
HEALTH_BADGES: Mapping[Health, Badge] = MappingProxyType({Health(badge.code): badge for badge in _BADGES})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """Badge, reason and next step. ``steady`` as in ``HealthStatus``."""

    badge: Badge
    reason: str  # code
    sentence: str
    codes: tuple[str, ...] = ()  # error codes of the reason
    next_step: str = ""
    needs_attention: bool = False
    steady: bool = True


def _codes(status: HealthStatus) -> str:
    return ", ".join(dict.fromkeys(status.codes)) or gettext("an error")


def _with_codes(text: str) -> Callable[[HealthStatus], str]:
    """Return the function that makes a sentence with the error codes of a status from its format."""
    return lambda status: gettext(text) % {"codes": _codes(status)}


def _counted(status: HealthStatus, whole: str, counted: str) -> str:
    """Return the sentence on the partitions of a status, or on the whole mirror topic if they are not counted."""
    text = counted if status.partitions else whole
    return text % {"count": numbers.count(status.partitions), "age": numbers.duration(status.age_ms)}


def _silence(status: HealthStatus) -> str:
    return _counted(
        status,
        gettext("No copy worker has reported for %(age)s."),
        ngettext(
            "No copy worker has reported on %(count)s partition for %(age)s.",
            "No copy worker has reported on %(count)s partitions for %(age)s.",
            status.partitions,
        ),
    )


def _blocked(status: HealthStatus) -> str:
    return _counted(
        status,
        gettext("Copying of the mirror topic fails: a cluster is unreachable or rejects the link."),
        ngettext(
            "Copying of %(count)s partition fails: a cluster is unreachable or rejects the link.",
            "Copying of %(count)s partitions fails: a cluster is unreachable or rejects the link.",
            status.partitions,
        ),
    )


def _stalled(status: HealthStatus) -> str:
    return _counted(
        status,
        gettext("No record is copied, although the mirror topic has been behind for %(age)s."),
        ngettext(
            "No record is copied, although %(count)s partition has been behind for %(age)s.",
            "No record is copied, although %(count)s partitions have been behind for %(age)s.",
            status.partitions,
        ),
    )


def _waiting(status: HealthStatus) -> str:
    return _counted(
        status,
        gettext("The mirror topic waits for a copy worker."),
        ngettext(
            "%(count)s partition waits for a copy worker.",
            "%(count)s partitions wait for a copy worker.",
            status.partitions,
        ),
    )


def _lag_unknown(status: HealthStatus) -> str:
    return _counted(
        status,
        gettext("The lag of the mirror topic is unknown."),
        ngettext(
            "The lag of %(count)s partition is unknown.",
            "The lag of %(count)s partitions is unknown.",
            status.partitions,
        ),
    )


def _beyond_objective(status: HealthStatus) -> str:
    age = gettext("unknown") if status.age_ms is None else numbers.duration(status.age_ms)
    return gettext("The time lag (%(age)s) exceeds the link's RPO objective.") % {"age": age}


def _late(status: HealthStatus) -> str:
    return gettext("The transition has not ended for %(age)s.") % {"age": numbers.duration(status.age_ms)}


_CHECK_ENGINE = gettext_noop(
    "Check that the Celery worker, Redis and Spark are running. Copying then resumes where it stopped; only records that the "
    "source deletes until then (retention, compaction) are lost."
)
_READ_ERRORS = gettext_noop("Read the error for the cause and what to do.")
# reason -> (sentence, next step). The next step of a code comes from the table of errors.
_TEXTS: Mapping[Reason, tuple[str | Callable[[HealthStatus], str], str]] = MappingProxyType(
    {
        Reason.MIRROR_FAILED: (
            _with_codes(gettext_noop("Mirroring failed: %(codes)s.")),
            gettext_noop("Fail over to keep the copied records, or delete the mirror topic and create it again."),
        ),
        Reason.LINK_FAILED: (
            gettext_noop("The source rejects the link's credentials, permissions or configuration."),
            gettext_noop("Edit the link's configuration. Copying then resumes automatically."),
        ),
        Reason.SOURCE_UNAVAILABLE: (
            gettext_noop("No broker of the source cluster responds."),
            gettext_noop("Check the source cluster and the network. In a disaster, fail over."),
        ),
        Reason.NO_COPY_WORKER: (gettext_noop("No copy worker can run."), _CHECK_ENGINE),
        Reason.ENGINE_ERROR: (
            gettext_noop("The copy engine reports an error, although all partitions are reported."),
            _CHECK_ENGINE,
        ),
        Reason.SILENT: (_silence, _CHECK_ENGINE),
        Reason.BLOCKED: (
            _blocked,
            gettext_noop("Check the partitions table for the error, then the clusters and the network."),
        ),
        Reason.STALLED: (
            _stalled,
            gettext_noop("Check the load of both clusters, their quotas and the link's throughput limit."),
        ),
        Reason.SETUP_FAILING: (_with_codes(gettext_noop("The mirror topic cannot be set up: %(codes)s.")), _READ_ERRORS),
        Reason.REPORT_OVERDUE: (
            _silence,
            gettext_noop("Wait for a minute: another copy worker takes over. Then check worker, Redis and Spark."),
        ),
        Reason.WAITING: (
            _waiting,
            gettext_noop("Check that copy workers run and have free task slots."),
        ),
        Reason.LAG_UNKNOWN: (
            _lag_unknown,
            gettext_noop("Check that the source cluster responds."),
        ),
        Reason.NOT_OBSERVED: (gettext_noop("Nothing has been observed yet."), _CHECK_ENGINE),
        Reason.ALARM: (
            _with_codes(gettext_noop("Alarm: %(codes)s.")),
            gettext_noop("Read the alarm. It stays until you end it."),
        ),
        Reason.ERROR: (_with_codes(gettext_noop("There are errors: %(codes)s.")), _READ_ERRORS),
        Reason.TASK_ERROR: (
            _with_codes(gettext_noop("A recurring task of the link fails for this topic: %(codes)s.")),
            gettext_noop("Read the error of the task."),
        ),
        Reason.LAG_BEYOND_OBJECTIVE: (
            _beyond_objective,
            gettext_noop("Check the load of both clusters and the throughput limit, or change link.rpo.objective.ms."),
        ),
        Reason.TRANSITION_LATE: (
            _late,
            gettext_noop("Check the errors and the worker's log. A failover ends a transition."),
        ),
        Reason.TASKS_FAILING: (
            gettext_noop("A recurring task of the link had errors in its last run."),
            gettext_noop("Open the Tasks tab of the link."),
        ),
        Reason.CLUSTER_UNREACHABLE: (
            gettext_noop("The last connection to the cluster failed."),
            gettext_noop("Check the network and the credentials."),
        ),
        Reason.CLUSTER_NOT_CHECKED: (
            gettext_noop("The cluster has not been checked yet."),
            gettext_noop("Select Refresh on the cluster's page."),
        ),
        Reason.DELETING: (gettext_noop("It is being deleted."), ""),
        Reason.SETTING_UP: (gettext_noop("The mirror topic is being set up. Copying starts afterwards."), ""),
        Reason.STOPPING: (gettext_noop("Mirroring is being stopped. The topic then becomes writable."), ""),
        Reason.REVERSING: (gettext_noop("The direction is being reversed."), ""),
        Reason.STARTING: (gettext_noop("Copying is starting."), ""),
        Reason.FIRST_COPY: (gettext_noop("The first copy is in progress. A failover now would lose records."), ""),
        Reason.PAUSED: (
            gettext_noop("Copying is paused by a user."),
            gettext_noop("Resume it before the retention of the source deletes records that are not copied yet."),
        ),
        Reason.STOPPED: (gettext_noop("Mirroring has stopped. The topic is writable."), ""),
        Reason.COPYING: (gettext_noop("All partitions are copied."), ""),
        Reason.NO_MIRRORS: (gettext_noop("The link has no mirror topics."), gettext_noop("Add mirror topics.")),
        Reason.SOURCE_SIDE: (gettext_noop("The mirror topics are on the destination's side of the link."), ""),
        Reason.NO_LINKS: (gettext_noop("There are no cluster links."), ""),
    }
)
REASONS = tuple(_TEXTS)


def health_view(status: HealthStatus, *, detail: str = "", share: str = "") -> HealthView:
    """Return the display of a status. ``detail`` is the known cause; ``share`` says how many mirror topics are concerned."""
    text, next_step = _TEXTS[status.reason]
    sentence = gettext(text) if isinstance(text, str) else text(status)
    next_step = gettext(next_step)
    if status.codes and status.reason is not Reason.MIRROR_FAILED:
        next_step = help_for(status.codes[0]).fix or next_step
    return HealthView(
        badge=HEALTH_BADGES[status.health],
        reason=status.reason,
        sentence=" ".join(part for part in (share, sentence, detail) if part),
        codes=tuple(dict.fromkeys(status.codes)),
        next_step=next_step,
        needs_attention=status.needs_attention,
        steady=status.steady,
    )


def link_health_view(health: LinkHealth, link: ClusterLink) -> HealthView:
    """Return the display of a link's health, with the number of mirror topics that share it."""
    return health_view(health.status, detail=_cause(health.status, link), share=_share(health))


def mirror_health_view(status: HealthStatus, link: ClusterLink, *, task_error: str) -> HealthView:
    """Return the display of a mirror's health; ``task_error`` is the message of a recurring task that names it."""
    detail = task_error if status.reason is Reason.TASK_ERROR else _cause(status, link)
    return health_view(status, detail=detail)


def _cause(status: HealthStatus, link: ClusterLink) -> str:
    """Return the cause from the error stored with the link; "" if there is none."""
    if status.reason in {Reason.NO_COPY_WORKER, Reason.ENGINE_ERROR}:
        return link.engine_error
    return link.error_message if status.reason in {Reason.LINK_FAILED, Reason.SOURCE_UNAVAILABLE} else ""


def cluster_health_view(links: Sequence[tuple[str, LinkHealth]], *, reachable: bool | None) -> HealthView:
    """Return the display of a cluster's health; ``links`` are (name, health), ``reachable`` is None without a check."""
    status = cluster_health(reachable=reachable, links=[health.status for _, health in links])
    name = next((name for name, health in links if health.status is status), "")
    copied = status.health in {Health.HEALTHY, Health.EMPTY}
    return health_view(status, share="" if copied or not name else gettext("Link %(name)s:") % {"name": name})


def environment_health_view(links: Sequence[tuple[str, HealthView]], clusters: Sequence[tuple[str, HealthView]]) -> HealthView:
    """Return the display of an environment's health: that of its worst link or cluster, which the sentence names.

    ``links`` and ``clusters`` are (name, health); the health of a cluster is that of its last probe, without its links.
    """
    named = [(gettext("Link %(name)s:") % {"name": name}, view) for name, view in links]
    named += [(gettext("Cluster %(name)s:") % {"name": name}, view) for name, view in clusters]
    if not named:
        return health_view(worst((), empty=Reason.NO_LINKS))
    name, view = min(named, key=lambda pair: severity(pair[1]))
    copied = view.badge.code in {Health.HEALTHY, Health.EMPTY}
    return view if copied else replace(view, sentence=f"{name} {view.sentence}")


def severity(view: HealthView) -> int:
    """Return a sort key: 0 is the worst health."""
    return SEVERITY[Health(view.badge.code)]


def _share(health: LinkHealth) -> str:
    total, number = len(health.mirrors), health.concerned
    if not number or health.status.health is Health.HEALTHY:
        return ""
    text = ngettext("%(number)s of %(total)s mirror topic:", "%(number)s of %(total)s mirror topics:", total)
    return text % {"number": numbers.count(number), "total": numbers.count(total)}
