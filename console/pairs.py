"""Which rows belong together: the two sides of a link, and the two topics that mirror each other in turn.

A bidirectional link is two rows of the same name, one at each cluster, each with the mirrors whose destination it is. A
source-initiated link is a row of mode SOURCE at the source and an INBOUND one at the destination. Reads only.
"""

from __future__ import annotations

from console.models import ClusterLink, MirrorTopic
from console.models.links import ConnectionMode, LinkMode
from linkengine.domain.states import MirrorState

_OTHER_MODE = {
    LinkMode.BIDIRECTIONAL: LinkMode.BIDIRECTIONAL,
    LinkMode.SOURCE: LinkMode.DESTINATION,
    LinkMode.DESTINATION: LinkMode.SOURCE,
}


def other_side(link: ClusterLink) -> ClusterLink | None:
    """Answer the row of the same link at the other cluster, if that is registered and the row was made."""
    if not has_two_sides(link):
        return None
    found = ClusterLink.objects.filter(
        name=link.name,
        mode=_OTHER_MODE[LinkMode(link.mode)],
        destination__cluster_id=link.source_cluster_id,
        source_cluster_id=link.destination.cluster_id,
        deletion_requested_at=None,
    )
    if link.mode == LinkMode.SOURCE:
        found = found.filter(connection_mode=ConnectionMode.INBOUND)
    return found.select_related("destination__environment", "source__environment").first()


def has_two_sides(link: ClusterLink) -> bool:
    """Tell whether the link is made of two rows, one at each cluster."""
    return link.mode != LinkMode.DESTINATION or link.connection_mode == ConnectionMode.INBOUND


def needs_other_side(link: ClusterLink) -> bool:
    """Tell whether the link does nothing without its other side: the source of an INBOUND link opens the connection."""
    return link.mode == LinkMode.SOURCE or (
        link.mode == LinkMode.DESTINATION and link.connection_mode == ConnectionMode.INBOUND
    )


def missing_side(link: ClusterLink) -> str:
    """Say what has to be created before a link that needs its other side can work."""
    here, there = link.destination.cluster_id, link.source_cluster_id
    if link.mode == LinkMode.SOURCE:
        return (
            f"The destination's side is missing: create cluster link '{link.name}' on cluster {there} with "
            f"link.mode=DESTINATION, connection.mode=INBOUND and source_cluster_id {here}. Mirror topics are created there."
        )
    return (
        f"The source's side is missing: create cluster link '{link.name}' on cluster {there} with link.mode=SOURCE and "
        f"destination_cluster_id {here}. Until then nothing is mirrored."
    )


def counterpart(mirror: MirrorTopic, *, other: ClusterLink | None = None) -> MirrorTopic | None:
    """Answer the row of the other topic of the two, if it has ever been a mirror of this one or shall become one."""
    there = other or other_side(mirror.link)
    if there is None:
        return None
    rows = MirrorTopic.objects.filter(link=there, name=mirror.source_topic, source_topic=mirror.name)
    return rows.select_related("link__destination__environment", "link__source").first()


def last_stop(mirror: MirrorTopic, other: MirrorTopic | None) -> MirrorTopic | None:
    """Answer whichever of the two was stopped last as a copy of the other: up to there both sides hold the same records."""
    stopped = [one for one in (mirror, other) if one is not None and _was_copy(one)]
    return max(stopped, key=lambda one: one.state_since, default=None)


def _was_copy(mirror: MirrorTopic) -> bool:
    return mirror.state == MirrorState.STOPPED and mirror.holds_copy
