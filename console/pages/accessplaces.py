"""The nodes of the tree organization > environment > cluster on which, or within which, a person may grant roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from console.access import ROLE_PERMISSIONS, Permission, can, visible_clusters, visible_environments
from console.actors import Actor
from console.errors import InvalidInputError
from console.models import Cluster, Environment, Organization, RoleBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPlace:
    """One node; ``key`` is its value in the form."""

    key: str
    label: str
    node: Organization | Environment | Cluster


class NodeKeyword(TypedDict, total=False):
    """A node as the keyword that the action takes; exactly one is there."""

    organization: Organization
    environment: Environment
    cluster: Cluster


def grantable(by: Actor) -> list[GrantPlace]:
    """List the nodes whose access the actor manages, or that of a topic or link there, from the root down; two queries."""
    environments = list(visible_environments(by).select_related("organization").order_by("name"))
    clusters = list(visible_clusters(by).select_related("environment__organization").order_by("name"))
    organizations = {one.organization_id: one.organization for one in environments}.values()
    tree = [_place("organization", one, one.name) for one in organizations]
    tree += [_place("environment", one, f"{one.organization.name} / {one.name}") for one in environments]
    tree += [
        _place("cluster", one, f"{one.environment.organization.name} / {one.environment.name} / {one.name}") for one in clusters
    ]
    return [one for one in tree if _manages(by, one.node)]


def node_of(key: str, *, by: Actor) -> NodeKeyword:
    """Answer the node behind a form value, as the keyword that the action takes."""
    for place in grantable(by):
        if place.key == key:
            return _keyword(place.node)
    raise InvalidInputError("Choose a scope from the list.", field="place")


def _keyword(node: Organization | Environment | Cluster) -> NodeKeyword:
    if isinstance(node, Organization):
        return {"organization": node}
    return {"environment": node} if isinstance(node, Environment) else {"cluster": node}


def _place(kind: str, node: Organization | Environment | Cluster, label: str) -> GrantPlace:
    return GrantPlace(key=f"{kind}:{node.pk}", label=label, node=node)


def _manages(by: Actor, node: Organization | Environment | Cluster) -> bool:
    if isinstance(node, Organization):
        return can(by, Permission.MANAGE_ACCESS, organization=node)
    if isinstance(node, Environment):
        return can(by, Permission.MANAGE_ACCESS, environment=node)
    parts = (one for one in by.bindings if one.cluster_id == node.pk)
    owns_part = any(Permission.MANAGE_ACCESS in ROLE_PERMISSIONS[RoleBinding.Role(one.role)] for one in parts)
    return owns_part or can(by, Permission.MANAGE_ACCESS, cluster=node)
