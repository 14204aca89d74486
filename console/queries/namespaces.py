"""Namespaces of a cluster with their replication states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils import timezone

from console.errors import NotFoundError
from console.models import Cluster, MirrorTopic, Namespace
from console.queries.mirrors import summarize
from linkengine.domain.namespaces import Follower, ReplicationState, contains, replication_state
from linkengine.domain.states import LinkState, MirrorState


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSummary:
    """A namespace, how well it follows, and how many mirror topics are in it."""

    namespace: Namespace
    state: ReplicationState
    mirrors: int


def list_namespaces(*, cluster: Cluster) -> list[NamespaceSummary]:
    """List the namespaces of a cluster by prefix; four queries."""
    rows = list(Namespace.objects.filter(cluster=cluster).select_related("link", "cluster"))
    mirrors = _mirrors_by_link({row.link_id for row in rows if row.link_id})
    return [_summary(row, mirrors[row.link_id]) for row in rows]


def get_namespace(*, cluster: Cluster, namespace_id: int) -> Namespace:
    """Answer one namespace of a cluster."""
    rows = Namespace.objects.filter(cluster=cluster).select_related("link", "cluster__environment")
    found = rows.filter(pk=namespace_id).first()
    if found is None:
        raise NotFoundError(f"Namespace {namespace_id} does not exist on this cluster.", code="UNKNOWN_NAMESPACE")
    return found


def summary_of(namespace: Namespace) -> NamespaceSummary:
    """Add its state to a namespace."""
    return _summary(namespace, _mirrors_by_link({namespace.link_id} - {None})[namespace.link_id])


def _mirrors_by_link(links: Iterable[int | None]) -> dict[int | None, list[tuple[str, Follower]]]:
    now = timezone.now()
    found: dict[int | None, list[tuple[str, Follower]]] = defaultdict(list)
    for mirror in MirrorTopic.objects.filter(link__in=list(links), drill=None).prefetch_related("partitions"):
        summary = summarize(mirror, now=now, errors=0)
        follower = Follower(state=MirrorState(mirror.state), lag=summary.total_lag, lag_ms=summary.lag_ms)
        found[mirror.link_id].append((mirror.name, follower))
    return found


def _summary(namespace: Namespace, mirrors: list[tuple[str, Follower]]) -> NamespaceSummary:
    inside = [follower for name, follower in mirrors if contains(namespace.prefix, name)]
    link = LinkState(namespace.link.state) if namespace.link else None
    return NamespaceSummary(namespace=namespace, state=replication_state(link=link, mirrors=inside), mirrors=len(inside))
