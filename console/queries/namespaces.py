"""Namespaces of a cluster with their replication states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from console.errors import NotFoundError
from console.mirrors import progress
from console.models import Cluster, ClusterLink, MirrorTopic, Namespace, SourceTopic
from console.queries.mirrors import summarize
from linkengine.domain.names import Follower, ReplicationState, contains, replication_state
from linkengine.domain.states import LinkState, MirrorState

LISTED = timedelta(minutes=5)  # the source's topics are listed twice a minute; an older list may lack newer topics


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSummary:
    """A namespace with its replication state and its topics. Unknown is None, never empty."""

    namespace: Namespace
    state: ReplicationState
    mirrors: int
    unmirrored: Sequence[str] | None  # topics of the source's namespace that no mirror of the link copies


def list_namespaces(*, cluster: Cluster) -> list[NamespaceSummary]:
    """Return the namespaces of a cluster by prefix, with their states; five queries."""
    rows = list(Namespace.objects.filter(cluster=cluster).select_related("link", "cluster"))
    links = {row.link_id for row in rows if row.link_id}
    mirrors, topics = _mirrors_by_link(links), _topics_by_link(links)
    return [_summary(row, mirrors[row.link_id], topics[row.link_id]) for row in rows]


def get_namespace(*, cluster: Cluster, namespace_id: int) -> Namespace:
    """Return a namespace of a cluster; raise NotFoundError if the cluster has no such namespace."""
    rows = Namespace.objects.filter(cluster=cluster).select_related("link", "cluster__environment")
    found = rows.filter(pk=namespace_id).first()
    if found is None:
        raise NotFoundError(f"Namespace {namespace_id} does not exist on this cluster.", code="UNKNOWN_NAMESPACE")
    return found


def summary_of(namespace: Namespace) -> NamespaceSummary:
    """Return a namespace with its replication state."""
    links = {namespace.link_id} - {None}
    return _summary(namespace, _mirrors_by_link(links)[namespace.link_id], _topics_by_link(links)[namespace.link_id])


def _mirrors_by_link(links: Iterable[int | None]) -> dict[int | None, list[tuple[MirrorTopic, Follower]]]:
    now = timezone.now()
    found: dict[int | None, list[tuple[MirrorTopic, Follower]]] = defaultdict(list)
    chosen = MirrorTopic.objects.listed().filter(link__in=list(links)).select_related("link").defer("link__properties")
    mirrors = list(chosen.prefetch_related("partitions"))
    progress.refresh(mirrors, now=now)
    for mirror in mirrors:
        summary = summarize(mirror, now=now, errors=0)
        follower = Follower(state=MirrorState(mirror.state), lag=summary.missing, lag_ms=summary.lag_ms)
        found[mirror.link_id].append((mirror, follower))
    return found


def _topics_by_link(links: Iterable[int | None]) -> dict[int | None, list[str]]:
    found: dict[int | None, list[str]] = defaultdict(list)
    for link_id, name in SourceTopic.objects.filter(link__in=list(links), internal=False).values_list("link", "name"):
        found[link_id].append(name)
    return found


def _summary(namespace: Namespace, mirrors: list[tuple[MirrorTopic, Follower]], topics: Sequence[str]) -> NamespaceSummary:
    inside = [follower for mirror, follower in mirrors if contains(namespace.prefix, mirror.name)]
    unmirrored = None
    if namespace.link and _is_listed(namespace.link):
        mirrored = {mirror.source_topic for mirror, _ in mirrors}
        unmirrored = [topic for topic in topics if contains(namespace.leader_prefix, topic) and topic not in mirrored]
    return NamespaceSummary(
        namespace=namespace,
        state=replication_state(
            link=LinkState(namespace.link.state) if namespace.link else None,
            mirrors=inside,
            unmirrored=None if unmirrored is None else len(unmirrored),
        ),
        mirrors=len(inside),
        unmirrored=unmirrored,
    )


def _is_listed(link: ClusterLink) -> bool:
    return link.topics_at is not None and timezone.now() - link.topics_at <= LISTED
