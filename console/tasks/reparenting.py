"""Measures whether a mirror could go on behind another copy of its source, with its copier out of the way."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from celery import shared_task

from console.models import ClusterLink, MirrorTopic
from console.reconciling import plans
from console.tasks import leases
from console.tasks.answers import answering
from console.tasks.holdings import held_by
from console.tasks.stopping import give_orders
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.leases import FIRST_GENERATION
from linkengine.domain.states import MirrorState

RELEASE_S = 6.0  # a dead copier's lease runs out after four


@shared_task(name="measure_reparenting")
@answering
def measure_reparenting(*, mirror_id: int, link_id: int, parent_topic: str) -> dict[str, Any]:
    """Answer what both topics hold and their ids. Of a paused mirror whose copier gave every partition back, this is final."""
    mirror = plans.load(mirror_id)
    link = ClusterLink.objects.select_related("destination", "source").filter(pk=link_id).first()
    if mirror is None or link is None or mirror.state != MirrorState.PAUSED:
        raise LinkEngineError(ErrorCode.ILLEGAL_STATE, "The mirror topic is not paused any more. Look again, then retry.")
    give_orders(mirror.link_id)
    with leases.taken(mirror, wait_s=RELEASE_S) as taken:
        check_released(mirror, taken)
        parent_id, parent = held_by(plans.source_address(link), parent_topic, closed=False)
        topic_id, held = held_by(mirror.link.destination.address, mirror.name, closed=True)
    return {
        "topic_id": topic_id,
        "held": [asdict(one) for one in held],
        "parent_id": parent_id,
        "parent": [asdict(one) for one in parent],
    }


def check_released(mirror: MirrorTopic, taken: leases.Taken) -> None:
    """Raise unless every partition was given back by its last owner; a lease that only ran out is left to run out again."""
    # a first generation: the leases' memory was lost, so nobody can tell who had the partition before
    unclean = [one for one in taken.grants if not one.clean or one.generation <= FIRST_GENERATION]
    for one in unclean:  # not ours to give back: the next owner has to hear that the last one never did
        taken.grants.remove(one)
    if not taken.complete:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR, f"The copier of {mirror.name!r} has not let go of every partition yet. Try again shortly."
        )
    if unclean:
        raise LinkEngineError(
            ErrorCode.ILLEGAL_STATE,
            f"The last copier of {mirror.name!r} may have died, and what it sent may still arrive. Resume the mirror topic, "
            "wait until its partitions are reported again, pause it and retry. If that does not help, the copier died while it "
            "filled a gap: do the same again half an hour after that.",
        )
