"""Create and delete ACLs of a cluster; the rules that keep mirror topics read-only stay."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.brokers import change
from console.models import Cluster, MirrorTopic
from linkengine.domain.states import WRITABLE

Rule = dict[str, Any]  # the fields of ``linkengine.domain.clusterviews.AclRule``


def create_acls(*, cluster: Cluster, rules: Sequence[Rule], by: Actor, now: datetime) -> None:
    """Create ACLs; those that exist stay."""
    check_permission(by, Permission.MANAGE_ACLS, cluster=cluster)
    _ask(cluster, "create_acls", "CreateAcls", {"rules": list(rules)}, by=by, now=now)


def delete_acls(*, cluster: Cluster, wanted: Rule, by: Actor, now: datetime) -> list[Rule]:
    """Delete what a filter matches and answer it; refused where that holds the guard of a mirror topic."""
    check_permission(by, Permission.MANAGE_ACLS, cluster=cluster)
    mirrors = MirrorTopic.objects.filter(link__destination=cluster).exclude(state__in=WRITABLE)
    asked = {"wanted": wanted, "guarded": sorted(mirrors.values_list("name", flat=True))}
    deleted: list[Rule] = _ask(cluster, "delete_acls", "DeleteAcls", asked, by=by, now=now)
    return deleted


def _ask(cluster: Cluster, question: str, action: str, asked: dict[str, Any], *, by: Actor, now: datetime) -> Any:
    detail = {name: value for name, value in asked.items() if name != "guarded"}
    resource = f"{audit.path_of(cluster)}/acls"
    return change(cluster, question, action=action, resource=resource, detail=detail, by=by, now=now, **asked)
