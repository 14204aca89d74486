"""Live queries and changes on a cluster through a worker: topics, configs, ACLs, consumer groups, brokers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from console import audit
from console.access import Permission, can, check_permission
from console.actors import Actor
from console.errors import NotFoundError, UnavailableError, from_cluster
from console.models import Cluster, MirrorTopic, RoleBinding
from console.queue import dispatch
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.messages import gettext_lazy, join_messages

# --- the call through a worker ----------------------------------------------------------------------------------------
#
# Translates the errors of the engine. Checks no permissions.


CALL_TIMEOUT_S = 30.0  # the engine's request timeout is 15 s; the largest query makes a few requests in sequence
_UNKNOWN = gettext_lazy(
    "It is unknown whether the change was made; it may still be made within the next %(seconds)s "
    "s. Check the cluster before you repeat it.",
    seconds=f"{CALL_TIMEOUT_S:.0f}",
)


def run_query(cluster: Cluster, query: str, **arguments: Any) -> Any:
    """Run a query of ``console.tasks.clusters.QUERIES`` on a cluster and return its result.

    Results are plain values as in ``linkengine.domain.clusterviews``. Raises the ConsoleError for the cluster's error, or
    UnavailableError if no worker responds.
    """
    try:
        return dispatch.call("query_cluster", timeout_s=CALL_TIMEOUT_S, cluster_pk=cluster.pk, query=query, arguments=arguments)
    except LinkEngineError as error:
        raise from_cluster(error) from error


def change(
    cluster: Cluster,
    query: str,
    *,
    action: str,
    resource: str,
    detail: dict[str, Any],
    by: Actor,
    now: datetime,
    response_key: str = "",
    **arguments: Any,
) -> Any:
    """Make a change of ``console.tasks.clusters.CHANGES`` on a cluster and return its result. Raises ConsoleError.

    The task that makes the change writes its audit row (``audit.carried_out``), so there is no change without one; with
    ``response_key`` the row has the cluster's response under that name. If no worker responds, a row says that the outcome is
    unknown, and so does the error. No row of the console requests the change, so it is not made later: a message that no
    worker takes by then expires.
    """
    entry = audit.entry(by=by, action=action, resource=resource, detail=detail, response_key=response_key)
    about = {"cluster_pk": cluster.pk, "query": query, "arguments": arguments, "entry": entry}
    try:
        return dispatch.call("change_cluster", timeout_s=CALL_TIMEOUT_S, change_id=uuid.uuid4().hex, **about)
    except LinkEngineError as error:
        raise from_cluster(error) from error
    except UnavailableError as error:
        unknown = {**detail, "code": error.code, "reason": error.message}
        audit.record(by=by, action=action, resource=resource, now=now, result=audit.Result.UNKNOWN, detail=unknown)
        raise UnavailableError(join_messages(" ", (error.message, _UNKNOWN)), code=error.code) from error


def no_topic(name: str) -> NotFoundError:
    """Return the error for a topic that does not exist or that the user may not see."""
    return NotFoundError(
        gettext_lazy(
            "Topic '%(name)s' cannot be found on this cluster. Check the name, and that you have a role on it.", name=name
        ),
        code="TOPIC_NOT_FOUND",
    )


# --- queries of a user ------------------------------------------------------------------------------------------------
#
# Results are filtered by the actor's roles and are otherwise those of ``run_query``. Each call waits for a worker and for the
# cluster.


_Kind = RoleBinding.ResourceType
Json = dict[str, Any]


def list_topics(*, cluster: Cluster, by: Actor) -> list[Json]:
    """Return the topics that the actor may see."""
    return [topic for topic in run_query(cluster, "topics") if _sees(by, cluster, _Kind.TOPIC, topic["name"])]


def get_topic(*, cluster: Cluster, topic: str, by: Actor) -> Json:
    """Return the description of a topic."""
    return dict(query_topic(cluster, "topic", topic=topic, by=by))


def query_topic(cluster: Cluster, query: str, *, topic: str, by: Actor) -> Any:
    """Query a topic; raise NotFoundError if it does not exist or the actor may not see it."""
    if not _sees(by, cluster, _Kind.TOPIC, topic):
        raise no_topic(topic)
    try:
        return run_query(cluster, query, topic=topic)
    except NotFoundError as error:
        raise no_topic(topic) from error


def topic_groups(*, cluster: Cluster, topic: str, by: Actor) -> Json:
    """Return the consumer groups of a topic that the actor may see, with their lag, as ``TopicGroups``."""
    found = query_topic(cluster, "topic_groups", topic=topic, by=by)
    visible = [group for group in found["groups"] if _sees(by, cluster, _Kind.GROUP, group["group_id"])]
    return {**found, "groups": visible}


def list_groups(*, cluster: Cluster, by: Actor) -> tuple[list[Json], str]:
    """Return the consumer groups that the actor may see, and why some may be missing ("" if none are)."""
    result = run_query(cluster, "groups")
    return [group for group in result["groups"] if _sees(by, cluster, _Kind.GROUP, group["group_id"])], result["incomplete"]


def query_group(cluster: Cluster, query: str, *, group: str, by: Actor) -> Any:
    """Query a consumer group; raise NotFoundError if it does not exist or the actor may not see it."""
    found = run_query(cluster, query, group_id=group) if _sees(by, cluster, _Kind.GROUP, group) else None
    if found is None:
        raise NotFoundError(
            gettext_lazy(
                "Consumer group %(group)s cannot be found. Check the name, and that you have a role on it.", group=group
            ),
            code="UNKNOWN_GROUP",
        )
    return found


def offsets_for_time(*, mirror: MirrorTopic, timestamp_ms: int, positions: Sequence[tuple[int, int]]) -> list[Json]:
    """Return the first record of each partition of a mirror topic that is not older than a timestamp; may be incomplete.

    The caller has checked the permission on the mirror.
    """
    cluster = mirror.link.destination
    try:
        return list(
            run_query(
                cluster,
                "offsets_for_time",
                topic=mirror.name,
                timestamp_ms=timestamp_ms,
                positions=[list(position) for position in positions],
            )
        )
    except NotFoundError as error:
        raise no_topic(mirror.name) from error


def query_brokers(cluster: Cluster, query: str, *, by: Actor, **arguments: Any) -> list[Json]:
    """Query the brokers. Requires VIEW on the whole cluster."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    return list(run_query(cluster, query, **arguments))


def list_reassignments(*, cluster: Cluster, topic: str | None, by: Actor) -> list[Json]:
    """Return the ongoing partition reassignments of a topic, or of all topics that the actor may see."""
    if topic is not None:
        return list(query_topic(cluster, "reassignments", topic=topic, by=by))
    return [row for row in run_query(cluster, "reassignments") if _sees(by, cluster, _Kind.TOPIC, row["topic"])]


def list_acls(*, cluster: Cluster, wanted: Json, by: Actor) -> list[Json]:
    """Return the ACLs that match a filter. Requires VIEW on the whole cluster."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    return list(run_query(cluster, "acls", wanted=wanted))


def _sees(by: Actor, cluster: Cluster, kind: str, name: str) -> bool:
    return can(by, Permission.VIEW, cluster=cluster, resource_type=kind, resource_name=name)
