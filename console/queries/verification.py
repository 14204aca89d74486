"""Runs of the verify job."""

from __future__ import annotations

from console.access import visible_mirrors
from console.actors import Actor
from console.errors import NotFoundError
from console.models import MirrorTopic, VerifyRun


def latest_run(*, mirror: MirrorTopic) -> VerifyRun | None:
    """Answer the newest run of a mirror."""
    return mirror.verify_runs.first()


def list_runs(*, mirror: MirrorTopic, limit: int = 50) -> list[VerifyRun]:
    """List the newest runs first."""
    return list(mirror.verify_runs.all()[:limit])


def get_run(*, run_id: int, by: Actor) -> VerifyRun:
    """Answer one run with its mirror."""
    runs = VerifyRun.objects.select_related("mirror__link__destination__environment__organization")
    run = runs.filter(pk=run_id, mirror__in=visible_mirrors(by)).first()
    if run is None:
        raise NotFoundError(f"Verify run {run_id} does not exist.", code="UNKNOWN_VERIFY_RUN")
    return run
