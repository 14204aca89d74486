"""Changes ordinary topics and ACLs of a cluster; refuses changes that would make a mirror differ or writable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.clusters.actions import check_free
from console.clusters.live_queries import change, no_topic, run_query
from console.errors import BadRequestError, ConflictError, NotFoundError
from console.mirrors.rules import why_needed
from console.models import Cluster, LinkConfig, MirrorTopic, RoleBinding
from linkengine.domain.configs import PHYSICAL, synced_names
from linkengine.domain.errors import ErrorCode
from linkengine.domain.messages import gettext_lazy

# --- topics -----------------------------------------------------------------------------------------------------------
#
# These changes are made on the cluster and store no rows; the audit log has what was requested and what the cluster returned.


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
    """Create a topic and return its description, or None with ``validate_only``.

    A parameter that is None gets the broker's default. Raises ConflictError if the name is in a reserved namespace, and
    BadRequestError if a mirror has the name.
    """
    _check(cluster, topic, by=by)
    check_free(cluster=cluster, topic=topic, by=by)
    _check_no_mirror(cluster, topic)
    detail = {"partitions": partitions, "replication_factor": replication_factor, "configs": dict(configs)}
    found: dict[str, Any] | None
    if validate_only:
        found = run_query(cluster, "create_topic", topic=topic, validate_only=True, **detail)
    else:
        arguments = {**detail, "validate_only": False}
        found = _change(
            cluster, topic, "create_topic", action="CreateTopic", arguments=arguments, detail=detail, by=by, now=now
        )
    return found


def delete_topic(*, cluster: Cluster, topic: str, by: Actor, now: datetime) -> None:
    """Delete an ordinary topic with its records; raise ConflictError for a mirror topic, which is deleted as a mirror."""
    reason = why_not_delete(cluster=cluster, topic=topic, by=by)
    if reason:
        raise ConflictError(reason)
    if not _change(cluster, topic, "delete_topic", action="DeleteTopic", arguments={}, detail={}, by=by, now=now):
        raise no_topic(topic)


def why_not_delete(*, cluster: Cluster, topic: str, by: Actor) -> str:
    """Return why an ordinary topic cannot be deleted now, "" if it can. Raises DeniedError; the cluster is not contacted."""
    _check(cluster, topic, by=by)
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        return gettext(
            "Topic '%(topic)s' is a mirror topic of cluster link '%(link)s'. Delete it as a mirror topic instead."
        ) % {"topic": topic, "link": mirror.link.name}
    return why_needed(cluster.cluster_id, topic)


def grow_topic(*, cluster: Cluster, topic: str, partitions: int, by: Actor, now: datetime) -> dict[str, Any]:
    """Increase an ordinary topic to ``partitions`` partitions and return its description; raise ConflictError for a mirror."""
    _check(cluster, topic, by=by)
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        raise ConflictError(
            gettext_lazy(
                "Topic '%(topic)s' is a mirror topic and has as many partitions as its source topic "
                "'%(source_topic)s'. Add the partitions to the source topic instead.",
                topic=topic,
                source_topic=mirror.source_topic,
            )
        )
    arguments = {"partitions": partitions}
    found: dict[str, Any] = _change(
        cluster, topic, "grow_topic", action="GrowTopic", arguments=arguments, detail=arguments, by=by, now=now
    )
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
    """Set and delete topic configs in one request.

    Raises ConflictError for configs that a mirror syncs from its source topic or that mirroring sets.
    """
    _check(cluster, topic, by=by)
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        _check_not_synced(mirror, {*values, *deletions})
    arguments = {"values": dict(values), "deletions": list(deletions), "validate_only": validate_only}
    if validate_only:
        run_query(cluster, "alter_topic_configs", topic=topic, **arguments)
        return
    detail = {"set": dict(values), "deleted": list(deletions)}
    _change(
        cluster, topic, "alter_topic_configs", action="AlterTopicConfigs", arguments=arguments, detail=detail, by=by, now=now
    )


def active_mirror(cluster: Cluster, topic: str) -> MirrorTopic | None:
    """Return the mirror with the topic's name, without a permission check; None for an ordinary topic and a stopped mirror."""
    rows = MirrorTopic.objects.unstopped().filter(link__destination=cluster, name=topic)
    return rows.select_related("link").first()


def _check(cluster: Cluster, topic: str, *, by: Actor) -> None:
    kind = RoleBinding.ResourceType.TOPIC
    check_permission(by, Permission.MANAGE_TOPIC, cluster=cluster, resource_type=kind, resource_name=topic)


def _check_no_mirror(cluster: Cluster, topic: str) -> None:
    """Raise BadRequestError if a mirror has the name: its topic may not exist yet, and its setup would find a foreign topic."""
    mirror = active_mirror(cluster, topic)
    if mirror is not None:
        raise BadRequestError(
            gettext_lazy(
                "Topic '%(topic)s' already exists: it is a mirror topic of cluster link '%(link)s', or is being "
                "created as one. Choose another name, or delete the mirror topic first.",
                topic=topic,
                link=mirror.link.name,
            ),
            code=ErrorCode.MIRROR_EXISTS_ERROR,
            field="topic_name",
        )


def _check_not_synced(mirror: MirrorTopic, names: set[str]) -> None:
    stored = LinkConfig.objects.filter(link=mirror.link_id, name="topic.config.sync.include").values_list("value", flat=True)
    include = next((value for value in stored if value), None)
    chosen = None if include is None else [name.strip() for name in include.split(",")]
    bound = sorted(names & {*synced_names(chosen), *PHYSICAL})
    if bound:
        raise ConflictError(
            gettext_lazy(
                "%(names)s cannot be changed on mirror topic '%(topic)s': it is synced from the source topic or "
                "required for mirroring. Change it on '%(source_topic)s', or stop the mirror first.",
                names=", ".join(bound),
                topic=mirror.name,
                source_topic=mirror.source_topic,
            )
        )


def _change(
    cluster: Cluster,
    topic: str,
    question: str,
    *,
    action: str,
    arguments: dict[str, Any],
    detail: dict[str, Any],
    by: Actor,
    now: datetime,
) -> Any:
    resource = f"{audit.path_of(cluster)}/topic/{topic}"
    try:
        return change(
            cluster, question, action=action, resource=resource, detail=detail, by=by, now=now, topic=topic, **arguments
        )
    except NotFoundError as error:
        raise no_topic(topic) from error


# --- ACLs -------------------------------------------------------------------------------------------------------------
#
# The ACLs that make mirror topics read-only cannot be deleted.


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
