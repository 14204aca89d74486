"""Registered clusters, their environments, topics and namespaces, and the search by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from console.access import (
    Permission,
    check_permission,
    visible_clusters,
    visible_environments,
    visible_links,
    visible_mirrors,
    visible_topics,
    whole_links,
)
from console.access.queries import known_user_names
from console.actors import Actor
from console.clusters.live_queries import no_topic
from console.errors import NotFoundError
from console.links.queries import matching_links
from console.mirrors import progress
from console.mirrors.queries import summarize
from console.models import (
    Cluster,
    ClusterLink,
    Environment,
    MirrorTopic,
    Namespace,
    SourceTopic,
    SyncedGroup,
    VerifiedRange,
    VerifyRun,
)
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.names import Follower, ReplicationState, contains, replication_state
from linkengine.domain.states import LinkState, MirrorState

# --- clusters and environments ----------------------------------------------------------------------------------------


def get_cluster(*, cluster_id: str, by: Actor) -> Cluster:
    """Return a cluster by its Kafka cluster ID, with its environment; raise NotFoundError."""
    cluster = visible_clusters(by).select_related("environment__organization").filter(cluster_id=cluster_id).first()
    if cluster is None:
        raise NotFoundError(
            gettext_lazy(
                "Cluster %(cluster_id)s cannot be found. Check the ID, and that you have a role on it.", cluster_id=cluster_id
            ),
            code="UNKNOWN_CLUSTER",
        )
    return cluster


def get_whole_cluster(*, cluster_id: str, by: Actor) -> Cluster:
    """Return a cluster for data of all its topics; raise DeniedError if the actor may see only some of them."""
    cluster = get_cluster(cluster_id=cluster_id, by=by)
    check_permission(by, Permission.VIEW, cluster=cluster)
    return cluster


def list_clusters(*, by: Actor, environment: Environment | None = None) -> list[Cluster]:
    """Return the visible clusters by name."""
    clusters = visible_clusters(by).select_related("environment__organization")
    if environment is not None:
        clusters = clusters.filter(environment=environment)
    return list(clusters)


def get_environment(*, slug: str, by: Actor) -> Environment:
    """Return an environment by its slug; raise NotFoundError."""
    environment = visible_environments(by).select_related("organization").filter(slug=slug).first()
    if environment is None:
        raise NotFoundError(
            gettext_lazy("Environment %(slug)s cannot be found. Check the name, and that you have a role on it.", slug=slug),
            code="UNKNOWN_ENVIRONMENT",
        )
    return environment


def list_environments(*, by: Actor) -> list[Environment]:
    """Return the visible environments by name."""
    return list(visible_environments(by).select_related("organization").order_by("name"))


def version_of(cluster: Cluster) -> list[object]:
    """Return the values of a loaded cluster that pages show, as the versions of a poll."""
    columns = ("bootstrap_servers", "brokers", "kafka_version", "has_authorizer", "probed_at", "error_code", "error_message")
    return [getattr(cluster, name) for name in ("pk", "environment_id", "name", *columns)]


def listed_topics(cluster: Cluster) -> QuerySet[SourceTopic]:
    """Return the topics of a cluster as of the last refresh, by name, without internal topics."""
    return SourceTopic.objects.filter(cluster=cluster, internal=False)


# --- topics of a cluster ----------------------------------------------------------------------------------------------
#
# As of the last check of the cluster.


Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOfCluster:
    """A topic with the mirror topics that the actor may see.

    Rows have name, source_topic, source (the cluster's id), link_name, destination (the cluster's id), destination_name, state
    and stop_reason.
    """

    topic: SourceTopic
    mirror_of: Row | None  # the mirror topic that it is; None if it is not a mirror topic of a visible link
    source_for: Sequence[Row]  # mirror topics that copy from it


MOST_NAMES = 1000  # in a condition; of more topics the mirror topics of the whole cluster are read


def cluster_topics(*, cluster: Cluster, by: Actor) -> QuerySet[SourceTopic]:
    """Return the topics of a cluster that the actor may see, by name."""
    return visible_topics(by).filter(cluster=cluster).order_by("name")


def get_topic(*, cluster: Cluster, name: str, by: Actor) -> TopicOfCluster:
    """Return a topic of a cluster with its mirror topics; raise NotFoundError. Two queries."""
    topic = cluster_topics(cluster=cluster, by=by).filter(name=name).first()
    if topic is None:
        raise no_topic(name)
    return with_mirrors([topic], cluster=cluster, by=by)[0]


def with_mirrors(topics: Sequence[SourceTopic], *, cluster: Cluster, by: Actor) -> list[TopicOfCluster]:
    """Add the mirror topics to topics of a cluster. One query."""
    names = {topic.name for topic in topics}
    here, there = Q(link__destination=cluster), Q(link__source_cluster_id=cluster.cluster_id)
    if len(names) <= MOST_NAMES:
        here, there = here & Q(name__in=names), there & Q(source_topic__in=names)
    rows = visible_mirrors(by).unstopped().filter(here | there).order_by("name", "pk")
    mirror_of: dict[str, Row] = {}
    source_for: dict[str, list[Row]] = defaultdict(list)
    columns: Iterable[Any] = rows.values(
        "name",
        "source_topic",
        "state",
        "stop_reason",
        source=F("link__source_cluster_id"),
        link_name=F("link__name"),
        destination=F("link__destination__cluster_id"),
        destination_name=F("link__destination__name"),
    )
    for row in columns:
        if row["destination"] == cluster.cluster_id:
            mirror_of[row["name"]] = row
        if row["source"] == cluster.cluster_id:
            source_for[row["source_topic"]].append(row)
    return [
        TopicOfCluster(topic=topic, mirror_of=mirror_of.get(topic.name), source_for=source_for[topic.name]) for topic in topics
    ]


# --- namespaces -------------------------------------------------------------------------------------------------------


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
        raise NotFoundError(
            gettext_lazy(
                "Namespace %(namespace_id)s does not exist on this cluster. Check the ID; the namespace may have been deleted.",
                namespace_id=namespace_id,
            ),
            code="UNKNOWN_NAMESPACE",
        )
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


# --- the search -------------------------------------------------------------------------------------------------------
#
# Rows are plain values, without lag and health, which would read the partitions of each mirror. Only links are objects, because
# the name of their source depends on what the actor may see.


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The rows found, by kind; at most ``limit`` each. Rows of links have link_name and the destination's cluster id."""

    links: Sequence[ClusterLink] = ()
    mirrors: Sequence[Row] = ()  # name, source_topic, state, stop_reason, destination_name, and those of a link
    clusters: Sequence[Row] = ()  # name, cluster_id, environment_name
    source_topics: Sequence[Row] = ()  # name, and those of a link
    topics: Sequence[Row] = ()  # name, cluster_name, listed_on: the cluster's id
    groups: Sequence[Row] = ()  # name, and those of a link
    users: Sequence[str] = ()
    is_cut: bool = False  # there is more of at least one kind

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, field.name) for field in fields(self))


def find(text: str, *, by: Actor, limit: int) -> Found:
    """Return the visible objects whose names contain the text; mirrors also by their source topic. Seven queries."""
    if not text:
        return Found()
    links = matching_links(by=by, search=text).order_by("name", "pk")
    mirrors = visible_mirrors(by).filter(Q(name__icontains=text) | Q(source_topic__icontains=text)).order_by("name", "pk")
    clusters = visible_clusters(by).filter(name__icontains=text).order_by("name", "pk")
    topics = visible_topics(by).filter(name__icontains=text).order_by("name", "cluster__name", "pk")
    about = ("name", "source_topic", "state", "stop_reason")
    found: dict[str, Iterable[Any]] = {
        "links": links[: limit + 1],
        "mirrors": _of_links(mirrors, limit, *about, destination_name=F("link__destination__name")),
        "clusters": clusters.values("name", "cluster_id", environment_name=F("environment__name"))[: limit + 1],
        "source_topics": _of_links(_whole(SourceTopic.objects.filter(internal=False), text, by=by), limit, "name"),
        "topics": topics.values("name", cluster_name=F("cluster__name"), listed_on=F("cluster__cluster_id"))[: limit + 1],
        "groups": _of_links(_whole(SyncedGroup.objects.all(), text, by=by), limit, "name"),
        "users": [name for name in known_user_names(by=by) if text.lower() in name.lower()],
    }
    rows = {kind: list(of_kind) for kind, of_kind in found.items()}
    is_cut = any(len(of_kind) > limit for of_kind in rows.values())
    return Found(**{kind: of_kind[:limit] for kind, of_kind in rows.items()}, is_cut=is_cut)


def _whole(rows: QuerySet[Any], text: str, *, by: Actor) -> QuerySet[Any]:
    """Return matching rows of links of which the actor may see everything."""
    return rows.filter(link__in=whole_links(by), name__icontains=text).order_by("name", "link__name", "pk")


def _of_links(rows: QuerySet[Any], limit: int, *names: str, **others: F) -> QuerySet[Any, Row]:
    place = {"link_name": F("link__name"), "destination": F("link__destination__cluster_id")}
    return rows.values(*names, **place, **others)[: limit + 1]


# --- the first steps of an installation -------------------------------------------------------------------------------
#
# From an empty installation to a verified mirror: which steps are done, as far as the actor may see it.


_NOT_SET_UP = (MirrorState.PENDING_SETUP, MirrorState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSteps:
    """The objects that exist already; None if there is none yet. The next step begins at one of them."""

    environment: Environment | None
    clusters: int  # two are enough to mirror between them
    cluster: Cluster | None
    link: ClusterLink | None
    mirror: MirrorTopic | None
    set_up: bool
    verified: bool


def first_steps(*, by: Actor) -> FirstSteps:
    """Return the first steps that are done already. At most four queries beside the actor's bindings."""
    clusters = list(visible_clusters(by).select_related("environment__organization").order_by("pk")[:2])
    link = visible_links(by).select_related("destination__environment__organization").order_by("pk").first()
    equal = VerifyRun.objects.filter(mirror=OuterRef("pk"), status=VerifyRun.Status.EQUAL)
    ranges = VerifiedRange.objects.filter(mirror=OuterRef("pk"), differences=0)
    mirrors = visible_mirrors(by).select_related("link__destination").annotate(is_verified=Exists(equal) | Exists(ranges))
    mirror = mirrors.filter(Q(link=link)).order_by("-is_verified", "pk").first() if link is not None else None
    return FirstSteps(
        environment=visible_environments(by).select_related("organization").order_by("pk").first(),
        clusters=len(clusters),
        cluster=clusters[0] if clusters else None,
        link=link,
        mirror=mirror,
        set_up=mirror is not None and mirror.state not in _NOT_SET_UP,
        verified=mirror is not None and bool(getattr(mirror, "is_verified", False)),
    )
