"""View model of the paired link: its page, or the values to create it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.urls import reverse

from console.presenters.badges import Badge
from console.presenters.directions import BOTH, SEND, Direction, opposite
from console.presenters.states import link_look

if TYPE_CHECKING:
    from console.models import ClusterLink


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSide:
    """The paired link. ``url`` is its page if it exists, ``create_url`` the form that creates it if it does not."""

    title: str
    sentence: str
    name: str
    cluster: str
    url: str = ""
    look: Badge | None = None
    values: Sequence[tuple[str, str]] = ()  # values for creating the paired link
    create_url: str = ""


def other_side(link: ClusterLink, other: ClusterLink | None, *, may_see: bool, may_create: bool) -> OtherSide:
    """Create the view of the paired link ``other``, or of the missing one. ``may_create``: on the other cluster."""
    cluster = link.known_source.name if link.known_source else f"cluster {link.source_cluster_id}"
    direction = opposite(link.mode)
    if other is not None:
        return OtherSide(
            title="Paired link",
            sentence=_PURPOSE[direction.key],
            name=other.name,
            cluster=cluster,
            url=other.get_absolute_url() if may_see else "",
            look=link_look(other.state),
        )
    return OtherSide(
        title="Next step: create the paired link",
        sentence=f"{_MISSING[direction.key]} Create it on {cluster} with these values"
        + (":" if may_create else ", or ask an administrator of that cluster:"),
        name=link.name,
        cluster=cluster,
        values=_values(link, direction),
        create_url=_create_url(link, direction) if may_create else "",
    )


_PURPOSE = {
    SEND.key: "The source side of this connection. Mirror topics are added here, on the destination side.",
    BOTH.key: "It has the mirror topics of that cluster. Topics can be reversed and restored between the two links.",
    "accept": "The destination side of this connection. Mirror topics are added and managed there.",
}
_MISSING = {
    SEND.key: "The source side of this link does not exist yet. Nothing is copied without it.",
    BOTH.key: "Topics can already be mirrored to this cluster. To reverse or restore them, create the paired link.",
    "accept": "The destination side of this link does not exist yet. Mirror topics are added there.",
}


def _values(link: ClusterLink, direction: Direction) -> list[tuple[str, str]]:
    there = [("link name", link.name), (direction.remote_field, link.destination.cluster_id)]
    return [*there, ("link.mode", direction.mode), ("connection.mode", _connection_mode(link, direction))]


def _connection_mode(link: ClusterLink, direction: Direction) -> str:
    """Return the connection mode of the paired link. At least one of two bidirectional links must open connections."""
    return "OUTBOUND" if direction is BOTH or link.connection_mode == "INBOUND" else direction.connection_mode


def _create_url(link: ClusterLink, direction: Direction) -> str:
    known = {"direction": direction.key, "destination": link.source_cluster_id, "source": link.destination.cluster_id}
    return reverse("pages:new-link", query=known | {"name": link.name})
