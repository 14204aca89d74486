"""Whether the migration gate of a mirror allows a promotion now, and if not, why; for actions, previews and pages."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import Q
from django.utils.translation import gettext, gettext_noop

from console.models import GateRun, MirrorTopic
from console.models.mirrors import RECORDS_DIFFER, RECORDS_LOST, STAYING, TOMBSTONES_MISSED, is_fresh
from linkengine.domain.states import MirrorEvent, MirrorState

GATED = (MirrorState.ACTIVE, MirrorState.PAUSED, MirrorState.SOURCE_UNAVAILABLE, MirrorState.LINK_FAILED)
RE_PARENTED = "re-parent"  # not in the state table: the mirror stays PAUSED
_MIRROR_STARTS = (MirrorEvent.MIRROR_READY, MirrorEvent.MIRROR_READY_PAUSED, RE_PARENTED)


class GateProblem(StrEnum):
    """The reason why a run that opened the gate no longer opens it."""

    OUTLIVED = "OUTLIVED"  # since then the topic was made a mirror again, or moved to another source
    REFUTED = "REFUTED"  # a problem was found later; copying and verification continue after a green run
    TOO_OLD = "TOO_OLD"


def gate_closed(mirror: MirrorTopic, *, now: datetime) -> str:
    """Return why the migration gate allows no promotion now, "" if it does or the link has no gate. In the page's language."""
    if mirror.link.config("migration.gate.enable") != "true":
        return ""
    newest = newest_run(mirror, ended=True)
    what = gettext("it has not been run yet") if newest is None else _why_closed(newest, now=now)
    if not what:
        return ""
    return gettext(
        "The migration gate of topic '%(topic)s' is closed: %(what)s. Run the gate, or override it with a reason; a failover "
        "is always possible."
    ) % {"topic": mirror.name, "what": what}


def gate_problem(run: GateRun, *, now: datetime) -> GateProblem | None:
    """Return why a run no longer opens the gate, None if it does or never did."""
    if not run.opens:
        return None
    if is_outlived(run):
        return GateProblem.OUTLIVED
    if _refuting(run):
        return GateProblem.REFUTED
    age = timedelta(milliseconds=int(run.mirror.link.config("migration.gate.max.age.ms")))
    return None if is_fresh(run.finished_at, now=now, within=age) else GateProblem.TOO_OLD


def newest_run(mirror: MirrorTopic, *, ended: bool = False) -> GateRun | None:
    """Return the run that was requested last, by number, since times are wrong after a clock was set back."""
    runs = mirror.gate_runs.exclude(status=GateRun.Status.RUNNING) if ended else mirror.gate_runs
    return runs.order_by("-id").first()


def is_outlived(run: GateRun) -> bool:
    """Return whether the topic became this mirror, or got this source, after the run was requested."""
    return run.mirror.transitions.filter(event__in=_MIRROR_STARTS, at__gt=run.requested_at).exists()


def _why_closed(run: GateRun, *, now: datetime) -> str:
    if is_outlived(run):
        return gettext("it has not been run since the topic became a mirror again, or moved to its present source")
    if not run.opens:
        failed = [check["name"] for check in run.checks if check["state"] == "FAILED"]
        checks = ", ".join(failed) or gettext("nothing could be checked")
        return gettext("its last run failed (%(checks)s)") % {"checks": checks}
    code = _refuting(run)
    if code:
        return f"{gettext(_REFUTED[code])} ({code})"
    return gettext("its last green run is too old") if gate_problem(run, now=now) else ""


def _refuting(run: GateRun) -> str:
    """Return the code of a problem found since a green run, "" if there is none. An override is not refuted."""
    if run.status != GateRun.Status.GREEN:
        return ""
    found = Q(code=RECORDS_DIFFER) | Q(code__in=STAYING, last_seen_at__gte=run.requested_at)
    return run.mirror.transition_errors.filter(found).values_list("code", flat=True).first() or ""


_REFUTED = {
    RECORDS_DIFFER: gettext_noop("records were found since its last run that differ from the source"),
    RECORDS_LOST: gettext_noop("since its last run the source lost records before they were copied"),
    TOMBSTONES_MISSED: gettext_noop("deletions of the source may have been missed since its last run"),
}
if set(_REFUTED) != set(STAYING):
    raise AssertionError("each permanent error refutes a green run and needs a text")
