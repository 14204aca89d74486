"""The scopes (organization, environment, cluster) that forms of the Access section offer to a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from console.access import Permission, can, visible_clusters, visible_environments
from console.access.roles import permissions_of
from console.actors import Actor
from console.errors import InvalidInputError
from console.models import Cluster, Environment, Organization


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPlace:
    """A scope. ``key`` is its value in the form."""

    key: str
    label: str
    node: Organization | Environment | Cluster

    @property
    def keyword(self) -> NodeKeyword:
        """The scope as a keyword of actions and of ``can``."""
        return _keyword(self.node)


class NodeKeyword(TypedDict, total=False):
    """A scope as keyword arguments of the action. Exactly one is set."""

    organization: Organization
    environment: Environment
    cluster: Cluster


def grantable(by: Actor) -> list[GrantPlace]:
    """List the scopes whose access the actor manages, or that of a topic or link there, top down. Two queries."""
    return [place for place in viewable(by) if _manages(by, place.node)]


def viewable(by: Actor) -> list[GrantPlace]:
    """List the scopes of which the actor may see at least one row, top down. Two queries."""
    environments = list(visible_environments(by).select_related("organization").order_by("name"))
    clusters = list(visible_clusters(by).select_related("environment__organization").order_by("name"))
    organizations = {environment.organization_id: environment.organization for environment in environments}.values()
    places = [_place("organization", organization, organization.name) for organization in organizations]
    paths = {environment.pk: f"{environment.organization.name} / {environment.name}" for environment in environments}
    places += [_place("environment", environment, paths[environment.pk]) for environment in environments]
    for cluster in clusters:
        environment = cluster.environment
        places.append(_place("cluster", cluster, f"{environment.organization.name} / {environment.name} / {cluster.name}"))
    return places


def node_of(key: str, *, by: Actor) -> NodeKeyword:
    """Return the scope of a form value as keyword arguments of the action; raise InvalidInputError if there is none."""
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
    on_cluster = (binding for binding in by.bindings if binding.cluster_id == node.pk)
    manages_resource = any(Permission.MANAGE_ACCESS in permissions_of(binding) for binding in on_cluster)
    return manages_resource or can(by, Permission.MANAGE_ACCESS, cluster=node)
