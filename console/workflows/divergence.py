"""Reads the log ranges of topics, and finds the offsets at which two topics with a common history diverge.

Topics are compared by id, because a topic that was deleted and created again has the same name but other records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any, NamedTuple

from console.models import ClusterLink, MirrorTopic
from console.reconciling import plans
from console.workflows import leases
from console.workflows.leases import publish_or_request_assignments
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import CommonPart, RestorePoint, common_ends, ends_behind_takeover_markers, restore_points
from linkengine.domain.plans import LogRange
from linkengine.domain.states import MirrorState

RELEASE_S = 6.0  # the lease of a crashed copy worker expires after four


class Topic(NamedTuple):
    """A topic name and the cluster that has the topic."""

    address: ClusterAddress
    name: str


class Divergence(NamedTuple):
    """Two topics, by id, and the restore point of each partition: where the two diverge."""

    here_id: str
    there_id: str
    points: tuple[RestorePoint, ...]


def log_ranges_of(address: ClusterAddress, topic: str, *, closed: bool) -> tuple[str, Sequence[LogRange]]:
    """Return the topic's id and the log range of each partition. ``closed``: no producer may write, so the ends are final.

    Raises UNKNOWN_TOPIC_OR_PARTITION_ERROR if the topic does not exist, and the errors of ``jobs.log_ranges``.
    """
    found = jobs.find_topic(address, topic)
    if found is None:
        raise LinkEngineError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
            f"Topic {topic!r} no longer exists. Check why it was deleted, and create it again if it is still needed.",
        )
    return found.topic_id, jobs.log_ranges(address, topic, closed=closed)


def find_divergence(
    here: Topic, there: Topic, *, parts: Iterable[CommonPart], held: tuple[str, Sequence[LogRange]] | None = None
) -> Divergence:
    """Find where two topics diverge, from what is known of their common part and from their current log ranges.

    ``held`` is the current range of the topic here, if the caller has just read it. If a source has lost records since they
    were copied (an unclean leader election, a cluster restored from a snapshot), the two have only the records before the loss
    in common (KIP-101). If a mirror has lost its end after it was stopped, how much it lost is not known, and nothing is
    common.
    """
    here_id, ranges_here = held or log_ranges_of(*here, closed=False)
    there_id, ranges_there = log_ranges_of(*there, closed=False)
    common = common_now(here, there, parts=parts, ids=(here_id, there_id))
    return Divergence(here_id, there_id, restore_points(ranges_here, common=common, other=ranges_there))


def common_now(here: Topic, there: Topic, *, parts: Iterable[CommonPart], ids: tuple[str, str]) -> dict[int, int]:
    """Return, by partition, up to which offset the two topics of these ids are the same, as both clusters confirm now."""
    fenced = [_with_fences(part, here, there) for part in parts if (part.here_id, part.there_id) == ids]
    confirmed = [_as_kept(part, here, there) for part in fenced]
    common = common_ends(confirmed, here_id=ids[0], there_id=ids[1])
    for stopped, taken in product(confirmed, fenced):
        for partition, end in ends_behind_takeover_markers(stopped, taken).items():
            common[partition] = max(end, common.get(partition, 0))
    return common


def _with_fences(part: CommonPart, here: Topic, there: Topic) -> CommonPart:
    """Return the common part without partitions whose copy has lost its fence."""
    copy = there if part.source_is_here else here
    lost = jobs.lost_fences(*copy, fences=part.fences, epochs=part.fence_epochs, by_markers=part.by_markers)
    return part.without(lost)


def _as_kept(part: CommonPart, here: Topic, there: Topic) -> CommonPart:
    """Return the common part up to where the leader epoch history of its source still matches."""
    source = here if part.source_is_here else there
    return part.as_kept(jobs.kept_up_to(*source, epochs=part.epochs))


def restore_points_of(
    link: ClusterLink, topic: str, *, source_topic: str, parts: list[dict[str, Any]]
) -> tuple[RestorePoint, ...]:
    """Return the restore points of a topic of the link's own cluster. Contacts both clusters and changes nothing."""
    known = [CommonPart.from_json(part) for part in parts]
    here, there = Topic(link.destination.address, topic), Topic(plans.source_address(link), source_topic)
    return find_divergence(here, there, parts=known).points


def measure_reparenting(mirror: MirrorTopic | None, link: ClusterLink | None, *, parent_topic: str) -> dict[str, Any]:
    """Return the ids and log ranges of a paused mirror and of another copy of its source, which it could continue from.

    They are final: all leases of the mirror are released.
    """
    if mirror is None or link is None or mirror.state != MirrorState.PAUSED:
        raise LinkEngineError(ErrorCode.ILLEGAL_STATE, "The mirror topic is no longer paused. Refresh its state, then retry.")
    publish_or_request_assignments(mirror.link_id)
    with leases.taken(mirror, wait_s=RELEASE_S) as taken:
        leases.check_released(mirror, taken)
        parent_id, parent = log_ranges_of(plans.source_address(link), parent_topic, closed=False)
        topic_id, held = log_ranges_of(mirror.link.destination.address, mirror.name, closed=True)
    return {
        "topic_id": topic_id,
        "held": [asdict(part) for part in held],
        "parent_id": parent_id,
        "parent": [asdict(part) for part in parent],
    }
