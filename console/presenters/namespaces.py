"""Namespaces as their page shows them: how well each follows, who may create topics in it, and what may be done next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.presenters.looks import Family, Look
from linkengine.domain.namespaces import ReplicationState

if TYPE_CHECKING:
    from console.models import ClusterLink, Namespace
    from console.queries.namespaces import NamespaceSummary

_ALONE = Look(
    code="DISCONNECTED",
    label="Follows no link",
    icon="pause-circle-fill",
    family=Family.IDLE,
    meaning="A name for a group of topics; nothing arrives in it.",
)
NAMED = 5  # topics without a mirror that are named
REPLICATION_LOOKS: Mapping[ReplicationState, Look] = MappingProxyType(
    {
        ReplicationState.DISCONNECTED: Look(
            code="DISCONNECTED",
            label="Disconnected",
            icon="plug-fill",
            family=Family.WARN,
            meaning="The link or a mirror topic in it is not fed any more.",
            next_step="The link's page says why.",
        ),
        ReplicationState.CATCHING_UP: Look(
            code="CATCHING_UP",
            label="Catching up",
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning="Something of the source is not here yet, is more than 10 seconds behind, or nobody knows.",
            next_step="Mirror what is not mirrored, or choose it by the link's auto-create filters.",
        ),
        ReplicationState.FOLLOWING: Look(
            code="FOLLOWING",
            label="Following",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="A few seconds behind at most.",
        ),
        ReplicationState.IN_SYNC: Look(
            code="IN_SYNC",
            label="In sync",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="Every topic of the source's namespace is mirrored, with everything it has.",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRow:
    """One namespace."""

    key: int
    name: str
    look: Look
    link: str
    link_url: str
    leader: str  # the namespace it follows at the source
    mirrors: int
    unmirrored: str  # which topics of the source's namespace have no mirror
    reserved: bool
    deleting: bool
    attached: bool
    guard: str  # whether the cluster itself keeps others out
    guard_problem: str
    candidates: list[str]  # links it could follow


def namespace_row(summary: NamespaceSummary, *, links: Iterable[ClusterLink]) -> NamespaceRow:
    """Present a namespace; ``links`` are those that end at its cluster."""
    one = summary.namespace
    return NamespaceRow(
        key=one.pk,
        name=str(one),
        look=REPLICATION_LOOKS[summary.state] if one.link else _ALONE,
        link=one.link.name if one.link else "",
        link_url=f"/links/{one.cluster.cluster_id}/{one.link.name}/" if one.link else "",
        leader=f"{one.leader_prefix}*" if one.link else "",
        mirrors=summary.mirrors,
        unmirrored=_unmirrored(summary),
        reserved=one.reserved,
        deleting=one.deletion_requested_at is not None,
        attached=one.link_id is not None,
        guard=_guard(one),
        guard_problem=one.guard_problem,
        candidates=[link.name for link in links if one.prefix.startswith(link.prefix) and link.deletion_requested_at is None],
    )


def _unmirrored(summary: NamespaceSummary) -> str:
    if not summary.namespace.link:
        return ""
    if summary.unmirrored is None:
        return "The source's topics could not be listed lately."
    rest = len(summary.unmirrored) - NAMED
    names = ", ".join(summary.unmirrored[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"Not mirrored: {names}." if names else ""


def leader_prefix(namespace: Namespace, link: ClusterLink) -> str:
    """Answer what topics of the namespace begin with at the link's source: the link puts its own prefix before it."""
    return namespace.prefix.removeprefix(link.prefix)


def _guard(namespace: Namespace) -> str:
    if namespace.deletion_requested_at is not None:
        return "It is being forgotten: the cluster is being asked to keep nobody out any more."
    if not namespace.reserved:
        return "Anybody may create topics in it."
    owner = "Only its link creates topics in it" if namespace.link_id else "Nobody creates topics in it through this console"
    if namespace.guarded is None:
        return f"{owner}; the cluster is being asked to keep others out."
    return f"{owner}; the cluster keeps others out." if namespace.guarded else f"{owner}; the cluster does not keep others out."
