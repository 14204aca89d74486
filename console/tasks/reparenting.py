"""Measures whether a mirror could continue from another copy of its source, while no copy worker writes to it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from celery import shared_task

from console.models import ClusterLink, MirrorTopic
from console.reconciling import plans
from console.tasks import leases
from console.tasks.calls import replying
from console.tasks.log_ranges import log_ranges_of
from console.tasks.stopping import write_assignments
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.leases import FIRST_GENERATION
from linkengine.domain.states import MirrorState

RELEASE_S = 6.0  # the lease of a crashed copy worker expires after four


@shared_task(name="measure_reparenting")
@replying
def measure_reparenting(*, mirror_id: int, link_id: int, parent_topic: str) -> dict[str, Any]:
    """Return the ids and log ranges of both topics. They are final: the mirror is paused and all its leases are released."""
    mirror = plans.load(mirror_id)
    link = ClusterLink.objects.select_related("destination", "source").filter(pk=link_id).first()
    if mirror is None or link is None or mirror.state != MirrorState.PAUSED:
        raise LinkEngineError(ErrorCode.ILLEGAL_STATE, "The mirror topic is no longer paused. Refresh its state, then retry.")
    write_assignments(mirror.link_id)
    with leases.taken(mirror, wait_s=RELEASE_S) as taken:
        check_released(mirror, taken)
        parent_id, parent = log_ranges_of(plans.source_address(link), parent_topic, closed=False)
        topic_id, held = log_ranges_of(mirror.link.destination.address, mirror.name, closed=True)
    return {
        "topic_id": topic_id,
        "held": [asdict(part) for part in held],
        "parent_id": parent_id,
        "parent": [asdict(part) for part in parent],
    }


def check_released(mirror: MirrorTopic, taken: leases.Taken) -> None:
    """Raise unless the last owner released every partition. Leases that only expired are left to expire again."""
    # the first generation: Redis has lost the leases, so the previous owner is unknown
    unclean = [grant for grant in taken.grants if not grant.clean or grant.generation <= FIRST_GENERATION]
    for grant in unclean:  # not to be released: the next owner must see that the previous one did not release it
        taken.grants.remove(grant)
    if not taken.complete:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR,
            f"The copy workers have not released every partition of {mirror.name!r} yet. Try again in a few seconds.",
        )
    if unclean:
        raise LinkEngineError(
            ErrorCode.ILLEGAL_STATE,
            f"The last copy worker of {mirror.name!r} may have crashed, and its requests may still arrive. Resume the mirror "
            "topic, wait until its partitions are reported again, pause it and retry. If that does not help, it crashed while "
            "filling a gap: repeat this half an hour later.",
        )
