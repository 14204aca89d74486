"""What a cluster itself says now: topics, configs, ACLs, consumer groups; asked through a worker, shown as far as roles allow.

Answers are those of ``console.brokers.ask``. Each call waits for a worker and a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.access import Permission, can, check_permission
from console.actors import Actor
from console.brokers import ask, no_topic
from console.errors import NotFoundError
from console.models import Cluster, MirrorTopic, RoleBinding

_Kind = RoleBinding.ResourceType
Json = dict[str, Any]


def list_topics(*, cluster: Cluster, by: Actor) -> list[Json]:
    """List the topics the actor may see."""
    return [one for one in ask(cluster, "topics") if _sees(by, cluster, _Kind.TOPIC, one["name"])]


def get_topic(*, cluster: Cluster, topic: str, by: Actor) -> Json:
    """Describe a topic."""
    return dict(ask_topic(cluster, "topic", topic=topic, by=by))


def ask_topic(cluster: Cluster, question: str, *, topic: str, by: Actor) -> Any:
    """Ask something about a topic; a topic that may not be seen is not there."""
    if not _sees(by, cluster, _Kind.TOPIC, topic):
        raise no_topic(topic)
    try:
        return ask(cluster, question, topic=topic)
    except NotFoundError as error:
        raise no_topic(topic) from error


def list_groups(*, cluster: Cluster, by: Actor) -> tuple[list[Json], str]:
    """List the consumer groups the actor may see, and say why some may be missing ("": none are)."""
    found = ask(cluster, "groups")
    return [group for group in found["groups"] if _sees(by, cluster, _Kind.GROUP, group["group_id"])], found["incomplete"]


def ask_group(cluster: Cluster, question: str, *, group: str, by: Actor) -> Any:
    """Ask something about a consumer group; one that may not be seen is not there."""
    found = ask(cluster, question, group_id=group) if _sees(by, cluster, _Kind.GROUP, group) else None
    if found is None:
        raise NotFoundError(f"Consumer group {group} cannot be found.", code="UNKNOWN_GROUP")
    return found


def offsets_for_time(*, mirror: MirrorTopic, timestamp_ms: int, positions: Sequence[tuple[int, int]]) -> list[Json]:
    """Look up the first record of each partition of a mirror topic that is not older than a moment; may be incomplete.

    The mirror has been looked up with the rights of the actor.
    """
    cluster = mirror.link.destination
    try:
        return list(
            ask(
                cluster,
                "offsets_for_time",
                topic=mirror.name,
                timestamp_ms=timestamp_ms,
                positions=[list(one) for one in positions],
            )
        )
    except NotFoundError as error:
        raise no_topic(mirror.name) from error


def ask_brokers(cluster: Cluster, question: str, *, by: Actor, **asked: Any) -> list[Json]:
    """Ask something about the brokers; who sees one topic only sees none of it."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    return list(ask(cluster, question, **asked))


def list_reassignments(*, cluster: Cluster, topic: str | None, by: Actor) -> list[Json]:
    """List the partitions that are being moved, of one topic or of all that the actor may see."""
    if topic is not None:
        return list(ask_topic(cluster, "reassignments", topic=topic, by=by))
    return [one for one in ask(cluster, "reassignments") if _sees(by, cluster, _Kind.TOPIC, one["topic"])]


def list_acls(*, cluster: Cluster, wanted: Json, by: Actor) -> list[Json]:
    """List the ACLs that a filter matches; who sees one topic only sees no ACLs."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    return list(ask(cluster, "acls", wanted=wanted))


def _sees(by: Actor, cluster: Cluster, kind: str, name: str) -> bool:
    return can(by, Permission.VIEW, cluster=cluster, resource_type=kind, resource_name=name)
