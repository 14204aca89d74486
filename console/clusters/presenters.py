"""View models of a registered cluster, of a topic of a cluster, and of namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from console.links.group_presenters import LagText, lag_text, readable_name
from console.web import numbers
from console.web.badges import Badge, Family, cluster_badge, mirror_badge, row_url
from console.web.errors import ErrorNote, error_note
from console.web.health_presenters import HealthView, cluster_health_view, environment_health_view
from console.web.numbers import Moment, moment, readable_config
from linkengine.domain.names import ReplicationState

if TYPE_CHECKING:
    from console.clusters.queries import NamespaceSummary, TopicOfCluster
    from console.links.queries import LinkSummary
    from console.models import Cluster, ClusterLink, Namespace


# --- registered clusters ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A registered cluster."""

    name: str
    cluster_id: str
    url: str
    bootstrap_servers: str
    badge: Badge
    brokers: str
    kafka_version: str
    authorizer: str
    probed: Moment | None
    note: ErrorNote | None


def cluster_row(cluster: Cluster, *, now: datetime) -> ClusterRow:
    """Create the row of a cluster, as of its last probe."""
    return ClusterRow(
        name=cluster.name,
        cluster_id=cluster.cluster_id,
        url=cluster.get_absolute_url(),
        bootstrap_servers=cluster.bootstrap_servers,
        badge=cluster_badge(probed=cluster.probed_at is not None, error_code=cluster.error_code),
        brokers=numbers.count(cluster.brokers),
        kafka_version=cluster.kafka_version or gettext("unknown"),
        authorizer=_authorizer(enabled=cluster.has_authorizer),
        probed=moment(cluster.probed_at, now=now),
        note=error_note(cluster.error_code, cluster.error_message, now=now),
    )


def cluster_health(cluster: Cluster, summaries: Sequence[LinkSummary]) -> HealthView:
    """Return the health of a cluster: that of its last probe, or of the worst of those links that are links to it."""
    links = [(summary.link.name, summary.health) for summary in summaries if summary.link.destination_id == cluster.pk]
    return cluster_health_view(links, reachable=cluster.is_reachable)


def environment_health(clusters: Sequence[Cluster], links: Sequence[tuple[str, HealthView]]) -> HealthView:
    """Return the health of an environment: the worst of its links and of the last probes of its clusters.

    ``links`` are (name, health).
    """
    return environment_health_view(links, [(cluster.name, cluster_health(cluster, ())) for cluster in clusters])


def _authorizer(*, enabled: bool) -> str:
    if enabled:
        return gettext("enabled: mirror topics can be read-only")
    return gettext("disabled: writes to mirror topics cannot be denied")


# --- a topic of a cluster ---------------------------------------------------------------------------------------------
#
# As a worker reads it: plain values of ``linkengine.domain.clusterviews``.


GROUPS_SHOWN = 200
_UNKNOWN_STATE = "UNKNOWN"  # of a group that could not be read
_SOURCES: Mapping[str, str] = MappingProxyType(  # Kafka's names of the source of a config
    {
        "DYNAMIC_TOPIC_CONFIG": gettext_noop("set on the topic"),
        "DYNAMIC_BROKER_CONFIG": gettext_noop("set on a broker at runtime"),
        "DYNAMIC_DEFAULT_BROKER_CONFIG": gettext_noop("set on all brokers at runtime"),
        "STATIC_BROKER_CONFIG": gettext_noop("configuration file of the broker"),
        "DEFAULT_CONFIG": gettext_noop("default of Kafka"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigRow:
    """The effective config of a topic; ``value`` is "" if it is empty or hidden."""

    name: str
    value: str
    source: str
    is_hidden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroupRow:
    """A consumer group of a topic."""

    name: str
    state: str
    kind: str
    members: str
    lag: LagText
    error: str  # why it could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroupList:
    """The consumer groups of a topic, those with the largest lag first."""

    rows: Sequence[TopicGroupRow]
    more: str  # number of groups that are not listed, "" for none
    unexamined: str  # which groups of the cluster were not examined, "" if all were
    incomplete: str
    has_unknown: bool


SOURCE_FOR_SHOWN = 3  # mirror topics listed per source topic


def topic_row(row: TopicOfCluster, names: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic with what it mirrors and what mirrors it. ``names`` are those of the visible clusters, by cluster id."""
    topic, mirror = row.topic, row.mirror_of
    listed = [
        {"name": source["name"], "cluster": source["destination_name"], "url": mirror_url(source)}
        for source in row.source_for[:SOURCE_FOR_SHOWN]
    ]
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "retention": numbers.retention(topic.retention_ms),
        "mirror_of": mirror
        and {
            "topic": mirror["source_topic"],
            "cluster": names.get(mirror["source"], mirror["source"]),
            "url": mirror_url(mirror),
        },
        "is_unknown_mirror": topic.is_mirror and mirror is None,
        "source_for": listed,
        "more": len(row.source_for) - len(listed),
    }


def listed_mirror(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mirror topic of ``TopicOfCluster`` or of the search, with the URL of its page and its badge."""
    return {**row, "url": mirror_url(row), "badge": mirror_badge(row["state"], row["stop_reason"])}


def mirror_url(row: Mapping[str, Any]) -> str:
    return row_url("pages:mirror", *link_args(row), row["name"])


def link_args(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the arguments of the URL patterns of a link's pages, from a row of a query."""
    return (row["destination"], row["link_name"])


def topic_config_rows(configs: Iterable[Mapping[str, Any]]) -> tuple[list[TopicConfigRow], list[TopicConfigRow]]:
    """Return the configs that are set on the topic or its brokers, those of the topic first, and those with Kafka's default."""
    ordered = sorted(configs, key=lambda config: (config["source"] != "DYNAMIC_TOPIC_CONFIG", config["name"]))
    changed = [_config_row(config) for config in ordered if not config["is_default"]]
    return changed, [_config_row(config) for config in ordered if config["is_default"]]


def topic_group_list(found: Mapping[str, Any]) -> TopicGroupList:
    """Return the view of ``TopicGroups``. An unknown lag is a dash or a lower bound, never 0."""
    groups = sorted(found["groups"], key=lambda group: -1 if group["lag"] is None else group["lag"], reverse=True)
    partitions = found["partitions"]
    return TopicGroupList(
        rows=[_group_row(group, partitions=partitions) for group in groups[:GROUPS_SHOWN]],
        more=numbers.count(len(groups) - GROUPS_SHOWN) if len(groups) > GROUPS_SHOWN else "",
        unexamined=_unexamined(examined=found["examined"], listed=found["listed"]),
        incomplete=found["incomplete"],
        has_unknown=any(group["known"] < partitions for group in groups),
    )


def _config_row(config: Mapping[str, Any]) -> TopicConfigRow:
    source = config["source"]
    return TopicConfigRow(
        name=config["name"],
        value=readable_config(config["name"], config["value"] or ""),
        source=gettext(_SOURCES[source]) if source in _SOURCES else source,
        is_hidden=config["is_sensitive"],
    )


def _group_row(group: Mapping[str, Any], *, partitions: int) -> TopicGroupRow:
    return TopicGroupRow(
        name=readable_name(group["group_id"]),
        state=gettext("unknown") if group["state"] == _UNKNOWN_STATE else group["state"],
        kind="" if group["type"] == _UNKNOWN_STATE else group["type"].lower(),
        members=numbers.count(group["members"]),
        lag=lag_text(total=group["lag"], largest=group["max_lag"], known=group["known"], partitions=partitions),
        error=group["error"],
    )


def _unexamined(*, examined: int, listed: int) -> str:
    if examined >= listed:
        return ""
    text = gettext(
        "Of %(listed)s consumer groups of the cluster, only the first %(examined)s by name were examined. More of them may "
        "read this topic."
    )
    return text % {"listed": numbers.count(listed), "examined": numbers.count(examined)}


# --- namespaces -------------------------------------------------------------------------------------------------------


_NOT_ATTACHED = Badge(
    code="DISCONNECTED",
    label=gettext_noop("Not attached"),
    icon="pause-circle-fill",
    family=Family.IDLE,
    meaning=gettext_noop("The namespace is not attached to a link."),
)
NAMED = 5  # topics without a mirror that are listed
REPLICATION_BADGES: Mapping[ReplicationState, Badge] = MappingProxyType(
    {
        ReplicationState.DISCONNECTED: Badge(
            code="DISCONNECTED",
            label=gettext_noop("Disconnected"),
            icon="plug-fill",
            family=Family.WARN,
            meaning=gettext_noop("The link or one of its mirror topics is no longer updated."),
            next_step=gettext_noop("See the link's page for the reason."),
        ),
        ReplicationState.CATCHING_UP: Badge(
            code="CATCHING_UP",
            label=gettext_noop("Catching up"),
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning=gettext_noop("A topic is not mirrored yet, lags more than 10 seconds, or its lag is unknown."),
            next_step=gettext_noop("Mirror the missing topics, or include them in the link's auto-create filters."),
        ),
        ReplicationState.FOLLOWING: Badge(
            code="FOLLOWING",
            label=gettext_noop("Following"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("All topics lag a few seconds at most."),
        ),
        ReplicationState.IN_SYNC: Badge(
            code="IN_SYNC",
            label=gettext_noop("In sync"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("All topics of the source namespace are mirrored and in sync."),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRow:
    """A namespace."""

    key: int
    name: str
    badge: Badge
    link: str
    link_url: str
    leader: str  # the namespace on the source
    mirrors: int
    unmirrored: str  # topics of the source namespace without a mirror
    reserved: bool
    deleting: bool
    attached: bool
    guard: str  # which link may create topics, and whether the cluster enforces it
    guard_problem: str
    candidates: list[str]  # links that it can be attached to


def namespace_row(summary: NamespaceSummary, *, links: Iterable[ClusterLink]) -> NamespaceRow:
    """Create the row of a namespace. ``links`` are the links to its cluster."""
    namespace = summary.namespace
    return NamespaceRow(
        key=namespace.pk,
        name=str(namespace),
        badge=_translated(REPLICATION_BADGES[summary.state] if namespace.link else _NOT_ATTACHED),
        link=namespace.link.name if namespace.link else "",
        link_url=reverse("pages:link", args=(namespace.cluster.cluster_id, namespace.link.name)) if namespace.link else "",
        leader=f"{namespace.leader_prefix}*" if namespace.link else "",
        mirrors=summary.mirrors,
        unmirrored=_unmirrored(summary),
        reserved=namespace.reserved,
        deleting=namespace.deletion_requested_at is not None,
        attached=namespace.link_id is not None,
        guard=_guard(namespace),
        guard_problem=namespace.guard_problem,
        candidates=[
            link.name for link in links if namespace.prefix.startswith(link.prefix) and link.deletion_requested_at is None
        ],
    )


def _translated(badge: Badge) -> Badge:
    return replace(badge, label=gettext(badge.label), meaning=gettext(badge.meaning), next_step=gettext(badge.next_step))


def _unmirrored(summary: NamespaceSummary) -> str:
    if not summary.namespace.link:
        return ""
    if summary.unmirrored is None:
        return gettext("The source topics could not be listed recently.")
    rest = len(summary.unmirrored) - NAMED
    names = ", ".join(summary.unmirrored[:NAMED])
    if rest > 0:
        return gettext("Not mirrored: %(names)s and %(count)s more.") % {"names": names, "count": rest}
    return gettext("Not mirrored: %(names)s.") % {"names": names} if names else ""


def leader_prefix(namespace: Namespace, link: ClusterLink) -> str:
    """Return the prefix of the namespace on the link's source: without the prefix that the link adds."""
    return namespace.prefix.removeprefix(link.prefix)


# By whether the namespace is attached to a link, and whether the cluster enforces the rule (None: not yet).
_GUARDS: Mapping[tuple[bool, bool | None], str] = {
    (True, None): gettext_noop("Only by its link; the cluster does not enforce it yet."),
    (True, True): gettext_noop("Only by its link; enforced by the cluster."),
    (True, False): gettext_noop("Only by its link; not enforced by the cluster."),
    (False, None): gettext_noop("Not possible through this console; the cluster does not enforce it yet."),
    (False, True): gettext_noop("Not possible through this console; enforced by the cluster."),
    (False, False): gettext_noop("Not possible through this console; not enforced by the cluster."),
}


def _guard(namespace: Namespace) -> str:
    if namespace.deletion_requested_at is not None:
        return gettext("Being deleted: the DENY rule on the cluster is being removed.")
    if not namespace.reserved:
        return gettext("Not restricted.")
    return gettext(_GUARDS[(namespace.link_id is not None, namespace.guarded)])
