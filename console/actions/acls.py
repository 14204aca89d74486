"""Creates and deletes ACLs of a cluster. The ACLs that make mirror topics read-only cannot be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.clusters.live_queries import change
from console.models import Cluster, MirrorTopic

Rule = dict[str, Any]  # the fields of ``linkengine.domain.clusterviews.AclRule``


def create_acls(*, cluster: Cluster, rules: Sequence[Rule], by: Actor, now: datetime) -> None:
    """Create ACLs; existing ACLs are kept."""
    check_permission(by, Permission.MANAGE_ACLS, cluster=cluster)
    _change_acls(cluster, "create_acls", "CreateAcls", {"rules": list(rules)}, by=by, now=now)


def delete_acls(*, cluster: Cluster, wanted: Rule, by: Actor, now: datetime) -> list[Rule]:
    """Delete the ACLs that match a filter and return them; refused if an ACL that makes a mirror topic read-only matches."""
    check_permission(by, Permission.MANAGE_ACLS, cluster=cluster)
    mirrors = MirrorTopic.objects.unstopped().filter(link__destination=cluster)
    arguments = {"wanted": wanted, "guarded": sorted(mirrors.values_list("name", flat=True))}
    deleted: list[Rule] = _change_acls(cluster, "delete_acls", "DeleteAcls", arguments, by=by, now=now)
    return deleted


def _change_acls(cluster: Cluster, question: str, action: str, arguments: dict[str, Any], *, by: Actor, now: datetime) -> Any:
    detail = {name: value for name, value in arguments.items() if name != "guarded"}
    resource = f"{audit.path_of(cluster)}/acls"
    return change(cluster, question, action=action, resource=resource, detail=detail, by=by, now=now, **arguments)
