"""Create, grow, configure and delete ordinary topics; a mirror topic is refused what would part it from its source.

The cluster changes, not our rows: the audit says what the cluster answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from console import audit
from console.access import Permission, check_permission
from console.actions.namespaces import check_free
from console.actors import Actor
from console.brokers import ask, change, no_topic
from console.errors import BadRequestError, ConflictError, NotFoundError
from console.models import Cluster, LinkConfig, MirrorTopic, RoleBinding
from console.policies import why_needed
from linkengine.domain.configs import PHYSICAL, synced_names
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import WRITABLE


def create_topic(
    *,
    cluster: Cluster,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    validate_only: bool = False,
    by: Actor,
    now: datetime,
) -> dict[str, Any] | None:
    """Create a topic and answer its description, None for ``validate_only``; what is None is the cluster's default."""
    _check(cluster, topic, by=by)
    check_free(cluster=cluster, topic=topic, by=by)
    _check_no_mirror(cluster, topic)
    detail = {"partitions": partitions, "replication_factor": replication_factor, "configs": dict(configs)}
    found: dict[str, Any] | None
    if validate_only:
        found = ask(cluster, "create_topic", topic=topic, validate_only=True, **detail)
    else:
        asked = {**detail, "validate_only": False}
        found = _change(cluster, topic, "create_topic", action="CreateTopic", asked=asked, detail=detail, by=by, now=now)
    return found


def delete_topic(*, cluster: Cluster, topic: str, by: Actor, now: datetime) -> None:
    """Delete an ordinary topic with its records; a mirror topic is deleted as a mirror."""
    _check(cluster, topic, by=by)
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        raise ConflictError(f"Topic '{topic}' is a mirror topic of cluster link '{mirror.link.name}'. Delete the mirror topic.")
    needed = why_needed(cluster.cluster_id, topic)
    if needed:
        raise ConflictError(needed)
    if not _change(cluster, topic, "delete_topic", action="DeleteTopic", asked={}, detail={}, by=by, now=now):
        raise no_topic(topic)


def grow_topic(*, cluster: Cluster, topic: str, partitions: int, by: Actor, now: datetime) -> dict[str, Any]:
    """Add partitions and answer the topic's description; a mirror has as many as its source."""
    _check(cluster, topic, by=by)
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        raise ConflictError(
            f"Topic '{topic}' is a mirror topic: it gets the partitions that '{mirror.source_topic}' gets. Grow that one."
        )
    asked = {"partitions": partitions}
    found: dict[str, Any] = _change(cluster, topic, "grow_topic", action="GrowTopic", asked=asked, detail=asked, by=by, now=now)
    return found


def alter_topic_configs(
    *,
    cluster: Cluster,
    topic: str,
    values: Mapping[str, str],
    deletions: Sequence[str],
    validate_only: bool = False,
    by: Actor,
    now: datetime,
) -> None:
    """Set and delete configs at once; those a mirror takes from its source, or needs to be one, are refused."""
    _check(cluster, topic, by=by)
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        _check_free(mirror, {*values, *deletions})
    asked = {"values": dict(values), "deletions": list(deletions), "validate_only": validate_only}
    if validate_only:
        ask(cluster, "alter_topic_configs", topic=topic, **asked)
        return
    detail = {"set": dict(values), "deleted": list(deletions)}
    _change(cluster, topic, "alter_topic_configs", action="AlterTopicConfigs", asked=asked, detail=detail, by=by, now=now)


def active_mirror(cluster: Cluster, topic: str) -> MirrorTopic | None:
    """Answer the mirror that a topic is now, whoever asks; None for an ordinary topic and for a stopped mirror."""
    rows = MirrorTopic.objects.filter(link__destination=cluster, name=topic).exclude(state__in=WRITABLE)
    return rows.select_related("link").first()


def _check(cluster: Cluster, topic: str, *, by: Actor) -> None:
    kind = RoleBinding.ResourceType.TOPIC
    check_permission(by, Permission.MANAGE_TOPIC, cluster=cluster, resource_type=kind, resource_name=topic)


def _check_no_mirror(cluster: Cluster, topic: str) -> None:
    """Keep the name for a mirror whose topic is not there yet: a set-up would come upon a topic that is none of its own."""
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        raise BadRequestError(
            f"Topic '{topic}' already exists: it is a mirror topic of cluster link '{mirror.link.name}', or is being made one. "
            "Choose another name, or delete the mirror topic first.",
            code=ErrorCode.MIRROR_EXISTS_ERROR,
            field="topic_name",
        )


def _check_free(mirror: MirrorTopic, names: set[str]) -> None:
    stored = LinkConfig.objects.filter(link=mirror.link_id, name="topic.config.sync.include").values_list("value", flat=True)
    include = next((value for value in stored if value), None)
    chosen = None if include is None else [name.strip() for name in include.split(",")]
    bound = sorted(names & {*synced_names(chosen), *PHYSICAL})
    if bound:
        raise ConflictError(
            f"{', '.join(bound)} of mirror topic '{mirror.name}' follows its source topic, or is what mirroring needs. "
            f"Change it on '{mirror.source_topic}', or stop the mirror first."
        )


def _change(
    cluster: Cluster,
    topic: str,
    question: str,
    *,
    action: str,
    asked: dict[str, Any],
    detail: dict[str, Any],
    by: Actor,
    now: datetime,
) -> Any:
    resource = f"{audit.path_of(cluster)}/topic/{topic}"
    try:
        return change(cluster, question, action=action, resource=resource, detail=detail, by=by, now=now, topic=topic, **asked)
    except NotFoundError as error:
        raise no_topic(topic) from error
