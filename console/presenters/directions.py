"""The directions to choose from when a link is created. Each sets link.mode and connection.mode.

A source-initiated connection consists of two links with the same name, as in Confluent Platform: the source side
(SOURCE/OUTBOUND) and the destination side (DESTINATION/INBOUND).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """A direction, from the perspective of the cluster on which the link is created."""

    key: str
    title: str
    hint: str
    lede: str
    own: str  # role of the cluster on which the link is created
    own_hint: str
    other: str  # role of the other cluster
    next_step: str  # after the creation
    mode: str = "DESTINATION"
    connection_mode: str = "OUTBOUND"
    own_first: bool = False  # the form asks for the own cluster first
    needs_registered: bool = False  # the other cluster must be a registered cluster
    remote_field: str = "source_cluster_id"  # name of the other cluster in the REST API

    @property
    def has_mirrors(self) -> bool:
        """Return True if mirror topics can be added to this link."""
        return self.mode != "SOURCE"

    def configs(self) -> dict[str, str]:
        """Return link.mode and connection.mode if they differ from their defaults."""
        mode = {"link.mode": self.mode} if self.mode != "DESTINATION" else {}
        return mode | ({"connection.mode": self.connection_mode} if self.connection_mode != "OUTBOUND" else {})


RECEIVE = Direction(
    key="receive",
    title="Mirror topics from another cluster",
    hint="A link on the destination cluster that reads from the source cluster. Recommended.",
    lede="Mirrors topics from the source cluster to the destination cluster. Copying starts when you add mirror topics.",
    own="Destination cluster",
    own_hint="The link and its mirror topics are created on this cluster.",
    other="Source cluster",
    next_step="Next step: add mirror topics.",
)
SEND = Direction(
    key="send",
    title="Send topics to another cluster",
    hint="The source side of a source-initiated connection. The source cluster opens the connections.",
    lede="Creates the source side of a source-initiated connection. Mirror topics are added on the destination side.",
    own="Source cluster",
    own_hint="The cluster whose topics are sent. This link is created on it.",
    other="Destination cluster",
    next_step="Next step: create the paired link on the destination cluster with the values below.",
    mode="SOURCE",
    own_first=True,
    remote_field="destination_cluster_id",
)
ACCEPT = Direction(
    key="accept",
    title="Receive topics from a source-initiated link",
    hint="The destination side of a source-initiated connection. Mirror topics are added to it.",
    lede="Creates the destination side of a source-initiated connection. The source side needs the same link name.",
    own="Destination cluster",
    own_hint="This link and its mirror topics are created on this cluster.",
    other="Source cluster",
    next_step="Next step: create the paired link on the source cluster with the values below.",
    connection_mode="INBOUND",
    needs_registered=True,
)
BOTH = Direction(
    key="both",
    title="Bidirectional",
    hint="Topics of each cluster can be mirrored to the other, reversed, and restored after a failover.",
    lede="A bidirectional connection has a link on each cluster, with the same name. Mirror topics can be added to both.",
    own="This cluster",
    own_hint="This link and its mirror topics are created on this cluster.",
    other="Other cluster",
    next_step="Next step: add mirror topics. To reverse or restore them, create the paired link.",
    mode="BIDIRECTIONAL",
    own_first=True,
    remote_field="remote_cluster_id",
)
DIRECTIONS: Mapping[str, Direction] = MappingProxyType(
    {direction.key: direction for direction in (RECEIVE, SEND, ACCEPT, BOTH)}
)
_OPPOSITE = {"SOURCE": ACCEPT, "BIDIRECTIONAL": BOTH, "DESTINATION": SEND}


def opposite(mode: str) -> Direction:
    """Return the direction of the paired link of a link with this mode."""
    return _OPPOSITE[mode]
