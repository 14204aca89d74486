"""Creates and deletes mirror topics, retries configs that the destination refused at the stop, and resets groups' offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction

from console import audit
from console.access import Permission, check_permission, link_words, whole_cluster_names
from console.access.approvals import check_approved
from console.actors import ENGINE, Actor
from console.clusters.actions import check_free
from console.clusters.live_queries import change, no_topic, run_query
from console.errors import BadRequestError, ConflictError, InvalidInputError, NotFoundError, from_cluster, from_engine
from console.links import checks as link_checks
from console.links.rules import auto_creates
from console.mirrors import transitions
from console.mirrors.rules import why_not, why_not_deletable, why_not_retry
from console.models import ClusterLink, LinkConfig, MirrorTopic, RoleBinding, StateTransitionError
from console.models.links import show_change
from console.models.mirrors import DELETION_REFUSED
from console.models.row_changes import lock_clusters
from console.queue import dispatch
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import quoted_name, without_nul
from linkengine.domain.linkrules import CONFIG as START_SPEC
from linkengine.domain.linkrules import EARLIEST, start_problem
from linkengine.domain.messages import gettext_lazy, gettext_noop
from linkengine.domain.mirrorability import TopicOfCluster, find_ring, ring_words
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import LinkMode, LinkState, MirrorEvent, MirrorState

# --- create and delete ------------------------------------------------------------------------------------------------
#
# A mirror is created in two steps: its row is stored here in state PENDING_SETUP, and a worker creates the topic. Whether the
# link's state allows it and the name is free is checked twice: before the clusters are contacted, and again under locks right
# before the row is stored.


_MIRRORING = gettext_noop(
    "Topic '%(topic)s' already exists. It is a mirror topic of %(link)s in state %(state)s; it was not changed. If you need a "
    "second copy, use a cluster link with a prefix."
)
_STOPPED = gettext_noop(
    "Topic '%(topic)s' already exists. It was a mirror topic of %(link)s and is %(state)s, so applications may write to it. "
    "Use a cluster link with a prefix, or delete the stopped mirror topic with all its records if they are not needed."
)
_FIELD_OF: dict[str, str | None] = {
    ErrorCode.TOPIC_EXISTS_ERROR: "mirror_topic_name",
    ErrorCode.INVALID_REQUEST_ERROR: None,  # the destination's message names the field: replicas, configs or partitions
    ErrorCode.POLICY_VIOLATION_ERROR: None,
}
_NOT_COPYING = {LinkState.FAILED, LinkState.UNAVAILABLE}


def create_mirror(  # noqa: PLR0913 - by name, with defaults
    *,
    link: ClusterLink,
    source_topic: str,
    mirror_topic: str | None = None,
    replication_factor: int | None = None,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
    check_clusters: Callable[[], None] | None = None,
    by: Actor,
    now: datetime,
) -> MirrorTopic:
    """Check a topic on both clusters and store its mirror in state PENDING_SETUP; a worker creates the topic.

    ``configs`` are configs of the new topic; a ``mirror.start.offset.spec`` among them takes precedence over the link's. With
    ``validate_only`` the returned row is not stored. If the same actor has created an equal mirror within the last
    ``links.checks.REPEAT_WINDOW``, that mirror is returned. Takes up to ``links.checks.CHECK_TIMEOUT_S``.

    A worker passes ``check_clusters``, which checks both clusters without the queue and raises LinkEngineError.
    """
    name = _mirror_name(link, source_topic, mirror_topic)
    check_permission(by, Permission.MANAGE_MIRROR, link=link, resource_type=RoleBinding.ResourceType.TOPIC, resource_name=name)
    overrides = {key: value for key, value in (configs or {}).items() if value is not None}
    start = _start_spec(link, overrides.pop(START_SPEC, ""))
    if replication_factor is not None and replication_factor < 1:
        raise InvalidInputError(
            gettext_lazy(
                "replication_factor must be at least 1. Enter a whole number from 1, or "
                "leave it out for the destination's default."
            ),
            field="replication_factor",
        )
    mirror = unsaved_mirror(link=link, source_topic=source_topic, by=by, now=now)
    mirror.replication_factor, mirror.config_overrides, mirror.start_spec = replication_factor, overrides, start
    existing = _find(link, name)
    if existing is not None:  # before the link's state is checked: a repeated request succeeds even if the link is paused now
        return _check_repeat(existing, mirror, by=by, now=now)
    check_link_state(link)
    check_free(cluster=link.destination, topic=name, link=link, by=by)
    check_ring(mirror, by=by)
    try:
        if check_clusters is not None:
            check_clusters()
        else:
            _check_on_clusters(link, source_topic, name, replication_factor=replication_factor, configs=overrides)
    except LinkEngineError as error:
        raise from_engine(error, field=_FIELD_OF.get(error.code, "source_topic_name")) from error
    return mirror if validate_only else _store(mirror, by=by, now=now)


def auto_create(*, link: ClusterLink, source_topic: str, now: datetime) -> MirrorTopic:
    """Store a mirror for a topic that the link's auto-create filters include; the caller has checked it on both clusters."""
    mirror = unsaved_mirror(link=link, source_topic=source_topic, by=ENGINE, now=now)
    mirror.auto_created = True
    return _store(mirror, by=ENGINE, now=now)


def unsaved_mirror(*, link: ClusterLink, source_topic: str, by: Actor, now: datetime) -> MirrorTopic:
    """Return an unsaved mirror with the link's defaults."""
    return MirrorTopic(
        link=link,
        name=link.prefix + source_topic,
        source_topic=source_topic,
        start_spec=default_start(link),
        state_since=now,
        created_at=now,
        created_by=by.name,
    )


def default_start(link: ClusterLink) -> str:
    """Return the link's ``mirror.start.offset.spec``, which applies to mirrors without their own."""
    return LinkConfig.objects.filter(link=link, name=START_SPEC).values_list("value", flat=True).first() or EARLIEST


def request_deletion(*, mirror: MirrorTopic, by: Actor, now: datetime) -> None:
    """Request the deletion of the mirror topic; a worker deletes the topic on the destination and then the row.

    Does nothing if the deletion was requested before. Raises ConflictError if auto-create would create the topic again, if
    topic deletion is disabled on the destination, or if a reversal or restore is turning this topic, or the topic on the other
    side, into a mirror.
    """
    check_permission(by, Permission.MANAGE_MIRROR, mirror=mirror)
    check_approved(mirror, MirrorEvent.DELETE, by=by)
    refusal = "" if mirror.deletion_requested_at is not None else why_not_deletable(mirror)
    if refusal:
        raise ConflictError(refusal, code=ErrorCode.TOPIC_DELETION_DISABLED)
    with transaction.atomic():
        if not MirrorTopic.objects.filter(pk=mirror.pk, deletion_requested_at=None).update(deletion_requested_at=now):
            return
        # after the UPDATE: it may have waited for a restore of the other side, which locks this row
        reason = "" if mirror.drill_id else why_not(mirror, MirrorEvent.DELETE)
        if reason:
            raise ConflictError(reason, code="MIRROR_WOULD_RETURN")
        transitions.apply_event(mirror=mirror, event=MirrorEvent.DELETE, by=by, now=now, deletion_requested_at=now)
        StateTransitionError.objects.filter(mirror=mirror, code=DELETION_REFUSED).end(now=now)
        audit.record(by=by, action="DeleteMirrorTopic", resource=audit.path_of(mirror), now=now)
    dispatch.send("reconcile_link", link_id=mirror.link_id)


def _store(mirror: MirrorTopic, *, by: Actor, now: datetime) -> MirrorTopic:
    """Store the mirror and queue its setup; if an equal request has stored it since the first check, return that row."""
    try:
        with transaction.atomic():
            _lock_and_recheck(mirror, by=by)
            existing = _find(mirror.link, mirror.name)
            if existing is not None:
                return _check_repeat(existing, mirror, by=by, now=now)
            mirror.save(force_insert=True)
            transitions.note_creation(mirror=mirror, by=by, now=now)
            audit.record(
                by=by,
                action="CreateMirrorTopic",
                resource=audit.path_of(mirror),
                now=now,
                detail={"source_topic": mirror.source_topic, "start": mirror.start_spec, "configs": mirror.config_overrides},
            )
            show_change(mirror.link_id)
    except IntegrityError:  # a row was inserted without the cluster lock
        raise _exists(mirror.name) from None
    dispatch.send("setup_mirror", mirror_id=mirror.pk)
    return mirror


def _lock_and_recheck(mirror: MirrorTopic, *, by: Actor) -> None:
    """Lock the destination cluster and the link until the commit, and repeat the checks on the current rows.

    The cluster lock prevents two links from creating mirrors of the same name, which would copy into one topic. The link lock
    prevents a concurrent deletion of the link, which fails over the mirrors that exist then and would miss this mirror.
    """
    lock_clusters(mirror.link.destination.cluster_id)
    link = ClusterLink.objects.select_for_update(of=("self",)).filter(pk=mirror.link_id).first()
    if link is None:
        raise ConflictError(
            gettext_lazy(
                "Cluster link '%(link)s' has been deleted, so the mirror topic was not created. Create the link again.",
                link=mirror.link.name,
            )
        )
    check_link_state(link)
    check_free(cluster=mirror.link.destination, topic=mirror.name, link=link, by=by)
    if mirror.auto_created and not auto_creates(link, mirror.source_topic):
        raise ConflictError(
            gettext_lazy(
                "The auto-create filters of cluster link '%(link)s' no longer include '%(source_topic)s'. Add "
                "the mirror topic by name, or change the filters.",
                link=link.name,
                source_topic=mirror.source_topic,
            )
        )


def _mirror_name(link: ClusterLink, source_topic: str, mirror_topic: str | None) -> str:
    if not source_topic:
        raise InvalidInputError(
            gettext_lazy("source_topic_name must not be empty. Give the name of a source topic."), field="source_topic_name"
        )
    expected = link.prefix + source_topic
    if mirror_topic in (None, "", expected):
        return expected
    if not link.prefix:
        message = gettext_lazy(
            "Topic renaming for mirroring is not supported: the cluster link has no prefix, so the mirror must "
            "have the name of its source topic, '%(source_topic)s'.",
            source_topic=source_topic,
        )
    else:
        message = gettext_lazy(
            "The mirror of '%(source_topic)s' must be named '%(expected)s', because the cluster link's prefix is '%(prefix)s'.",
            source_topic=source_topic,
            expected=expected,
            prefix=link.prefix,
        )
    raise BadRequestError(message, code="INVALID_MIRROR_NAME", field="mirror_topic_name")


def _start_spec(link: ClusterLink, requested: str) -> str:
    """Return the requested start, or else the link's; raise InvalidInputError if it is malformed."""
    spec = requested or default_start(link)
    problem = start_problem(spec)
    if problem:
        raise InvalidInputError(problem, code="INVALID_CONFIG", field=START_SPEC)
    return spec


def check_link_state(link: ClusterLink) -> None:
    """Raise ConflictError if no mirror can be created on the link in its current state."""
    if link.mode == LinkMode.SOURCE:
        raise ConflictError(
            gettext_lazy(
                "This cluster is the source of cluster link '%(link)s'. Create mirror topics on its destination "
                "cluster %(cluster)s.",
                link=link.name,
                cluster=link.source_cluster_id,
            )
        )
    if link.deletion_requested_at is not None:
        raise ConflictError(gettext_lazy("Cluster link '%(link)s' is being deleted. Choose another link.", link=link.name))
    if link.state == LinkState.PAUSED:
        raise ConflictError(
            gettext_lazy("Cluster link '%(link)s' is paused. Set cluster.link.paused to false first.", link=link.name)
        )
    if link.state in _NOT_COPYING:
        raise ConflictError(
            gettext_lazy(
                "Cluster link '%(link)s' is %(state)s: %(problem)s Fix that first.",
                link=link.name,
                state=link.state.lower(),
                problem=link.error_message,
            )
        )


def _find(link: ClusterLink, name: str) -> MirrorTopic | None:
    return (
        MirrorTopic.objects.filter(link__destination=link.destination_id, name=name).select_related("link__destination").first()
    )


def _check_repeat(existing: MirrorTopic, wanted: MirrorTopic, *, by: Actor, now: datetime) -> MirrorTopic:
    """Return the existing mirror if this request repeats its creation; otherwise raise MIRROR_EXISTS_ERROR.

    Clients retry a create whose response was lost. A request is such a retry if actor and values are the same and the mirror
    was created within ``links.checks.REPEAT_WINDOW``.
    """
    fields = ("link_id", "source_topic", "start_spec", "replication_factor", "config_overrides")
    same = all(getattr(existing, name) == getattr(wanted, name) for name in fields)
    if same and link_checks.is_recent(existing, by=by, now=now):
        return existing
    raise _mirror_exists(existing, by=by)


def check_ring(mirror: MirrorTopic, *, by: Actor) -> None:
    """Raise BadRequestError if the mirror would close a ring of mirrors, so that its topic would be its own source.

    The message names the clusters of the ring that ``by`` may see.
    """
    link = mirror.link
    topic = TopicOfCluster(link.destination.cluster_id, mirror.name)
    ring = find_ring(_source_of, source=TopicOfCluster(link.source_cluster_id, mirror.source_topic), mirror=topic)
    if ring:
        path = ring_words(ring, names=whole_cluster_names(by))
        message = gettext_lazy(
            "The mirrors would form a ring, so '%(topic)s' would receive its own records: %(path)s. Mirror the "
            "original topic instead, or stop a mirror of this ring first.",
            topic=mirror.name,
            path=path,
        )
        raise BadRequestError(message, code="MIRROR_RING", field="source_topic_name")


def _source_of(topic: TopicOfCluster) -> TopicOfCluster | None:
    rows = MirrorTopic.objects.filter(link__destination__cluster_id=topic.cluster, name=topic.name)
    found = rows.unstopped().values_list("link__source_cluster_id", "source_topic").first()
    return TopicOfCluster(*found) if found else None


def _check_on_clusters(link: ClusterLink, source_topic: str, name: str, **wanted: Any) -> None:
    topics = {"source_topic": source_topic, "mirror_topic": name}
    dispatch.call("check_mirror", timeout_s=link_checks.CHECK_TIMEOUT_S, link_id=link.pk, **topics, **wanted)


def _mirror_exists(mirror: MirrorTopic, *, by: Actor) -> BadRequestError:
    """Return an error that names the mirror's link. It does not advise to delete the topic, as for an ordinary topic."""
    explanation = _STOPPED if mirror.state == MirrorState.STOPPED else _MIRRORING
    link = link_words(by, mirror.link.destination)(mirror.link.name)
    message = gettext_lazy(explanation, topic=mirror.name, link=link, state=mirror.state)
    return BadRequestError(message, code=ErrorCode.MIRROR_EXISTS_ERROR, field="mirror_topic_name")


def _exists(name: str) -> BadRequestError:
    return BadRequestError(
        gettext_lazy(
            "Topic '%(name)s' already exists: another request has created it. Reload the list of mirror topics.", name=name
        ),
        code="TOPIC_EXISTS_ERROR",
        field="mirror_topic_name",
    )


# --- refused configs --------------------------------------------------------------------------------------------------


RETRY_TIMEOUT_S = 30.0  # a single request, then a request per config if the cluster refuses some


def retry_refused_configs(*, mirror: MirrorTopic, by: Actor, now: datetime) -> Sequence[RefusedStep]:
    """Restore the topic configs that the destination refused to restore when the mirror was stopped.

    Returns the configs that are refused again. A config that a person has set since then is left alone and counts as resolved.
    Raises ConflictError if there is nothing to retry, and an error of ``console.errors`` if the cluster cannot be reached; the
    failure is in the audit log.
    """
    check_permission(by, Permission.OPERATE_MIRROR, mirror=mirror)
    reason = why_not_retry(mirror)
    if reason:
        raise ConflictError(reason)
    resource, action = audit.path_of(mirror), "RetryRefusedConfigs"
    try:
        rows = dispatch.call("restore_source_configs", timeout_s=RETRY_TIMEOUT_S, mirror_id=mirror.pk)
    except LinkEngineError as error:
        detail = {"code": error.code, "reason": error.message}
        audit.record(by=by, action=action, resource=resource, now=now, result=audit.Result.FAILURE, detail=detail)
        raise from_cluster(error) from error
    refused = [RefusedStep(**row) for row in rows]
    audit.record(by=by, action=action, resource=resource, now=now, detail={"refused": [step.name for step in refused]})
    return refused


# --- consumer groups --------------------------------------------------------------------------------------------------


def reset_group(
    *, mirror: MirrorTopic, group: str, offsets: Sequence[tuple[int, int]], execute: bool, by: Actor, now: datetime
) -> list[dict[str, Any]]:
    """Set the offsets of a consumer group on a mirror topic; return the result per partition.

    ``offsets`` are pairs of partition and offset. With ``execute=False`` nothing is changed, and the result shows what would
    be. Needs the permission to manage the group. The audit log has the requested offsets, whether or not the cluster accepted
    them.
    """
    cluster, kind = mirror.link.destination, RoleBinding.ResourceType.GROUP
    check_permission(by, Permission.MANAGE_GROUP, cluster=cluster, resource_type=kind, resource_name=without_nul(group))
    arguments = {"topic": mirror.name, "group_id": group, "offsets": [list(pair) for pair in offsets], "execute": execute}
    if not execute:
        return _reset(run_query, mirror, arguments)
    resource = f"{audit.path_of(mirror)}/group/{quoted_name(group)[1:-1]}"
    detail: dict[str, Any] = {"offsets": {str(partition): offset for partition, offset in offsets}}
    audited = partial(change, action="ResetGroup", resource=resource, detail=detail, by=by, now=now, response_key="partitions")
    return _reset(audited, mirror, arguments)


def _reset(query: Any, mirror: MirrorTopic, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return list(query(mirror.link.destination, "reset_group", **arguments))
    except NotFoundError as error:
        raise no_topic(mirror.name) from error
