"""The ways in which a link may carry topics, as a person chooses one: words first, link.mode and connection.mode follow.

Confluent Platform calls the two halves of a source-initiated link SOURCE/OUTBOUND and DESTINATION/INBOUND; both have one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One way, from the side of the cluster at which the link (or this half of it) is created."""

    key: str
    title: str
    hint: str
    lede: str
    own: str  # what the cluster is to which the row belongs
    own_hint: str
    other: str  # what the cluster at the other end is
    next_step: str  # after it was created
    mode: str = "DESTINATION"
    connection_mode: str = "OUTBOUND"
    own_first: bool = False  # topics leave the own cluster, so it is asked for first
    needs_registered: bool = False  # the other cluster is reached by its registration, nothing else
    remote_field: str = "source_cluster_id"  # what REST calls the other cluster

    @property
    def has_mirrors(self) -> bool:
        """Tell whether mirror topics can be added to this half."""
        return self.mode != "SOURCE"

    def configs(self) -> dict[str, str]:
        """Answer the two configs where they differ from their defaults."""
        mode = {"link.mode": self.mode} if self.mode != "DESTINATION" else {}
        return mode | ({"connection.mode": self.connection_mode} if self.connection_mode != "OUTBOUND" else {})


RECEIVE = Direction(
    key="receive",
    title="Mirror topics here from another cluster",
    hint="One link, created at the destination, which reads from the source. The usual choice.",
    lede="Topics flow from the source to the destination. Nothing is copied until there are mirror topics.",
    own="Destination cluster",
    own_hint="The link and its mirror topics live here.",
    other="Source cluster",
    next_step="Add the topics to mirror.",
)
SEND = Direction(
    key="send",
    title="Send this cluster's topics to another one",
    hint="Source-initiated, in two halves: without this one, at the source, the other cluster reads nothing.",
    lede="The source's half of a source-initiated link. The destination needs the other half, where mirror topics are added.",
    own="Source cluster",
    own_hint="Its topics are sent; this half of the link is created here.",
    other="Destination cluster",
    next_step="Now create the other half, at the destination: its values are below.",
    mode="SOURCE",
    own_first=True,
    remote_field="destination_cluster_id",
)
ACCEPT = Direction(
    key="accept",
    title="Take in topics that another cluster sends",
    hint="The destination's half of a source-initiated link; mirror topics are added to it.",
    lede="The destination's half of a source-initiated link. It copies once the source's half exists too, under the same name.",
    own="Destination cluster",
    own_hint="Mirror topics live here; this half of the link is created here.",
    other="Source cluster",
    next_step="Now create the other half, at the source: its values are below.",
    connection_mode="INBOUND",
    needs_registered=True,
)
BOTH = Direction(
    key="both",
    title="Both ways",
    hint="Bidirectional: topics of either cluster can be mirrored to the other, reversed, and restored after a failover.",
    lede="A bidirectional link has one half at each cluster, both under one name. Mirror topics are added at either.",
    own="This cluster",
    own_hint="This half of the link, and the mirror topics added to it, live here.",
    other="Other cluster",
    next_step="Add the topics to mirror here; to reverse or restore them, create the other half too.",
    mode="BIDIRECTIONAL",
    own_first=True,
    remote_field="remote_cluster_id",
)
DIRECTIONS: Mapping[str, Direction] = MappingProxyType({one.key: one for one in (RECEIVE, SEND, ACCEPT, BOTH)})
_OPPOSITE = {"SOURCE": ACCEPT, "BIDIRECTIONAL": BOTH, "DESTINATION": SEND}


def opposite(mode: str) -> Direction:
    """Answer the direction of the other half of a link that has two, by the mode of this one."""
    return _OPPOSITE[mode]
