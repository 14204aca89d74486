"""Whether the migration gate of a mirror allows a promotion now, and if not, why; for actions, previews and pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Exists, Max, OuterRef, Q, Subquery
from django.utils.translation import gettext, gettext_noop

from console.models import GateRun, MirrorTopic, StateTransition, StateTransitionError
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
    return gates_closed([mirror], now=now).get(mirror.name, "")


def gates_closed(mirrors: Sequence[MirrorTopic], *, now: datetime) -> dict[str, str]:
    """Return why the gates of mirrors of a link allow no promotion now, by name, without those that allow it. One query."""
    if not mirrors or mirrors[0].link.config("migration.gate.enable") != "true":
        return {}
    newest = _newest_runs(mirrors)
    text = gettext(
        "The migration gate of topic '%(topic)s' is closed: %(what)s. Run the gate, or override it with a reason; a failover "
        "is always possible."
    )
    found = {}
    for mirror in mirrors:
        run = newest.get(mirror.pk)
        what = gettext("it has not been run yet") if run is None else _why_closed(run, mirror, now=now)
        if what:
            found[mirror.name] = text % {"topic": mirror.name, "what": what}
    return found


def gate_problem(run: GateRun, *, now: datetime) -> GateProblem | None:
    """Return why a run no longer opens the gate, None if it does or never did."""
    if not run.opens:
        return None
    if is_outlived(run):
        return GateProblem.OUTLIVED
    if _refuting(run):
        return GateProblem.REFUTED
    return GateProblem.TOO_OLD if _is_too_old(run, run.mirror, now=now) else None


def _is_too_old(run: GateRun, mirror: MirrorTopic, *, now: datetime) -> bool:
    age = timedelta(milliseconds=int(mirror.link.config("migration.gate.max.age.ms")))
    return not is_fresh(run.finished_at, now=now, within=age)


def _newest_runs(mirrors: Sequence[MirrorTopic]) -> dict[int, Any]:
    """Return the newest ended runs by primary key of the mirror, with ``outlived`` and ``refuting``. One query."""
    runs = GateRun.objects.filter(mirror__in=[mirror.pk for mirror in mirrors]).exclude(status=GateRun.Status.RUNNING)
    newest = runs.order_by().values("mirror").annotate(newest=Max("pk")).values("newest")
    starts = StateTransition.objects.filter(
        mirror=OuterRef("mirror"), event__in=_MIRROR_STARTS, at__gt=OuterRef("requested_at")
    )
    errors = StateTransitionError.objects.filter(_refutes(OuterRef("requested_at")), mirror=OuterRef("mirror"))
    found = GateRun.objects.filter(pk__in=newest).annotate(
        outlived=Exists(starts), refuting=Subquery(errors.order_by("since", "pk").values("code")[:1])
    )
    return {run.mirror_id: run for run in found}


def newest_run(mirror: MirrorTopic) -> GateRun | None:
    """Return the run that was requested last, by number."""
    return mirror.gate_runs.order_by("-id").first()


def is_outlived(run: GateRun) -> bool:
    """Return whether the topic became this mirror, or got this source, after the run was requested."""
    return run.mirror.transitions.filter(event__in=_MIRROR_STARTS, at__gt=run.requested_at).exists()


def _why_closed(run: Any, mirror: MirrorTopic, *, now: datetime) -> str:
    """Return why a run of ``_newest_runs`` does not open the gate, "" if it does."""
    if run.outlived:
        return gettext("it has not been run since the topic became a mirror again, or moved to its present source")
    if not run.opens:
        failed = [check["name"] for check in run.checks if check["state"] == "FAILED"]
        checks = ", ".join(failed) or gettext("nothing could be checked")
        return gettext("its last run failed (%(checks)s)") % {"checks": checks}
    if run.refuting and run.status == GateRun.Status.GREEN:
        return f"{gettext(_REFUTED[run.refuting])} ({run.refuting})"
    return gettext("its last green run is too old") if _is_too_old(run, mirror, now=now) else ""


def _refuting(run: GateRun) -> str:
    """Return the code of a problem found since a green run, "" if there is none. An override is not refuted."""
    if run.status != GateRun.Status.GREEN:
        return ""
    return run.mirror.transition_errors.filter(_refutes(run.requested_at)).values_list("code", flat=True).first() or ""


def _refutes(requested_at: Any) -> Q:
    """Return the condition for errors of a mirror that refute a green run that was requested at this time."""
    return Q(code=RECORDS_DIFFER) | Q(code__in=STAYING, last_seen_at__gte=requested_at)


_REFUTED = {
    RECORDS_DIFFER: gettext_noop("records were found since its last run that differ from the source"),
    RECORDS_LOST: gettext_noop("since its last run the source lost records before they were copied"),
    TOMBSTONES_MISSED: gettext_noop("deletions of the source may have been missed since its last run"),
}
if set(_REFUTED) != set(STAYING):
    raise AssertionError("each permanent error refutes a green run and needs a text")
