"""The other half of a link that has two: where it is, or with which values it still has to be created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from console.presenters.directions import BOTH, SEND, Direction, opposite
from console.presenters.links import link_url
from console.presenters.looks import Look
from console.presenters.states import link_look

if TYPE_CHECKING:
    from console.models import ClusterLink


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSide:
    """``url`` leads to the half that exists, ``create_url`` to the form that makes the missing one."""

    title: str
    sentence: str
    name: str
    cluster: str
    url: str = ""
    look: Look | None = None
    values: Sequence[tuple[str, str]] = ()  # to be given where the missing half is created
    create_url: str = ""


def other_side(link: ClusterLink, other: ClusterLink | None, *, may_see: bool, may_create: bool) -> OtherSide:
    """Present the pair; ``may_create`` tells whether the other cluster is one at which the person may create links."""
    cluster = link.known_source.name if link.known_source else f"cluster {link.source_cluster_id}"
    direction = opposite(link.mode)
    if other is not None:
        return OtherSide(
            title="Other half",
            sentence=_PURPOSE[direction.key],
            name=other.name,
            cluster=cluster,
            url=link_url(other) if may_see else "",
            look=link_look(other.state),
        )
    return OtherSide(
        title="Next: create the other half",
        sentence=f"{_MISSING[direction.key]} Create it on {cluster} with these values"
        + (":" if may_create else ", or ask somebody who may:"),
        name=link.name,
        cluster=cluster,
        values=_values(link, direction),
        create_url=_create_url(link, direction) if may_create else "",
    )


_PURPOSE = {
    SEND.key: "It is the source's half, and lets this one read. Mirror topics are added here.",
    BOTH.key: "It holds the mirror topics of that cluster. Topics can be reversed and restored between the two.",
    "accept": "It is the destination's half: mirror topics are added and operated there.",
}
_MISSING = {
    SEND.key: "The source's half of this link does not exist yet, and nothing is copied without it.",
    BOTH.key: "Topics can be mirrored to here already. To reverse or restore them, the link needs its other half.",
    "accept": "The destination's half of this link does not exist yet. Mirror topics are added there.",
}


def _values(link: ClusterLink, direction: Direction) -> list[tuple[str, str]]:
    there = [("link name", link.name), (direction.remote_field, link.destination.cluster_id)]
    return [*there, ("link.mode", direction.mode), ("connection.mode", _connection_mode(link, direction))]


def _connection_mode(link: ClusterLink, direction: Direction) -> str:
    """Of the two halves of a bidirectional link at least one opens connections."""
    return "OUTBOUND" if direction is BOTH or link.connection_mode == "INBOUND" else direction.connection_mode


def _create_url(link: ClusterLink, direction: Direction) -> str:
    known = {"direction": direction.key, "destination": link.source_cluster_id, "source": link.destination.cluster_id}
    return f"/links/new/?{urlencode(known | {'name': link.name})}"
