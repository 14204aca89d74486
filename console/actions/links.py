"""Creates, configures and deletes cluster links."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import F

from console import audit
from console.access import Permission, check_permission
from console.access.approvals import check_approved
from console.actions import linkchecks, operations
from console.actions.drills import check_no_drill
from console.actions.linkconfigs import ConfigChange, alter_configs
from console.actions.row_locks import lock_clusters, lock_link
from console.actors import Actor
from console.errors import BadRequestError, ConflictError, InvalidInputError, UnavailableError
from console.links import pairs
from console.models import Cluster, ClusterLink, LinkConfig, RoleBinding
from console.queue import dispatch
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.names import check_link_name
from linkengine.domain.states import LinkState, MirrorEvent, MirrorState

__all__ = ["ConfigChange", "alter_configs", "create_link", "delete_link", "remove_link"]

NAMES_SHOWN = 5  # in a message that lists mirrors


def create_link(  # noqa: PLR0913 - one keyword per value of the request
    *,
    destination: Cluster,
    name: str,
    source_cluster_id: str,
    cluster_link_id: str = "",
    configs: Mapping[str, str | None],
    validate_only: bool = False,
    validate_link: bool = True,
    by: Actor,
    now: datetime,
) -> ClusterLink | linkchecks.LinkValidation:
    """Link ``destination`` to a source cluster; with ``validate_only`` store nothing and return the validation.

    ``destination`` is the cluster to which the row belongs and ``source_cluster_id`` the other cluster, whatever the link's
    mode. If ``source_cluster_id`` is empty, it is read from the source. The second side of a pair gets the first side's id;
    ``cluster_link_id``, if given, must equal it. If the source is registered here and the configs have no security that works
    with it, the registered cluster's credentials are used, provided that the actor may use them (``linkcredentials.choose``).
    With ``validate_link`` the source is contacted, which takes up to ``linkchecks.CHECK_TIMEOUT_S``.
    """
    path = f"{audit.path_of(destination)}/link/{name}"
    check_creation(destination=destination, name=name, by=by)
    _check_name(name)
    unsaved = linkchecks.unsaved_link(
        destination=destination,
        name=name,
        source_cluster_id=source_cluster_id,
        cluster_link_id=cluster_link_id,
        configs=configs,
        by=by,
        now=now,
    )
    existing = ClusterLink.objects.filter(destination=destination, name=name).first()
    if existing is not None:
        return _check_repeat(existing, unsaved, by=by, now=now)
    found = linkchecks.LinkValidation(source_cluster_id=unsaved.link.source_cluster_id, distances=None)
    try:
        if validate_link:
            found = linkchecks.check_unsaved(unsaved, with_distances=validate_only)
        elif not unsaved.link.source_cluster_id:
            raise InvalidInputError(
                "source_cluster_id is missing. Give it, or validate the link, so that the id is read from the source.",
                field="source_cluster_id",
            )
    except UnavailableError as error:
        detail = {"code": error.code, "reason": error.message}
        audit.record(by=by, action="CreateClusterLink", resource=path, now=now, result=audit.Result.FAILURE, detail=detail)
        raise
    return found if validate_only else _store(unsaved, by=by, now=now)


def check_creation(*, destination: Cluster, name: str, by: Actor) -> None:
    """Raise DeniedError unless the actor may create a link with this name on the cluster."""
    kind = RoleBinding.ResourceType.CLUSTER_LINK
    check_permission(by, Permission.MANAGE_LINK, cluster=destination, resource_type=kind, resource_name=name)


def delete_link(*, link: ClusterLink, force: bool = False, validate_only: bool = False, by: Actor, now: datetime) -> None:
    """Delete a link; raise ConflictError while it has mirrors that are not STOPPED or a drill, unless ``force`` is set.

    ``force`` fails these mirrors over first: their topics stay on the destination as ordinary, writable topics, and the link is
    deleted when the last mirror is fenced. If the deletion of a stopped mirror's topic is pending, the link is deleted after
    it.
    """
    check_permission(by, Permission.MANAGE_LINK, link=link)
    attached = list(link.mirrors.unstopped().values_list("name", "drill"))
    if not force:
        _check_detached(link, [name for name, drill in attached if drill is None])
        check_no_drill(link)
    if validate_only:
        return
    if attached or link.mirrors.exclude(deletion_requested_at=None).exists():
        _request_deletion(link, force=force, by=by, now=now)
    else:
        remove_link(link=link, by=by, now=now)


def remove_link(*, link: ClusterLink, by: Actor, now: datetime) -> None:
    """Delete the rows of a link whose mirrors are all stopped, with their history; the audit log is kept.

    Raises ConflictError while the deletion of a topic is pending, since it could not be completed without the mirror's row.
    """
    with transaction.atomic():
        locked = lock_link(link)
        _check_finished(locked)
        leave_pair(locked, now=now)
        audit.record(by=by, action="DeleteClusterLink", resource=audit.path_of(link), now=now)
        partitions = {mirror.engine_name: mirror.num_partitions for mirror in locked.mirrors.all()}
        locked.mirrors.all().delete()
        locked.delete()
    dispatch.send("forget_link", link_key=link.link_uuid.hex, partitions=partitions)


def leave_pair(link: ClusterLink, *, now: datetime) -> None:
    """Set the paired link to FAILED if it needs this side: an INBOUND link has no connection without its source side.

    A paused link stays paused; the error is set when it is resumed.
    """
    other = pairs.other_side(link)
    if other is not None and pairs.needs_other_side(other):
        ClusterLink.objects.filter(pk=other.pk).exclude(state=LinkState.PAUSED).update(
            state=LinkState.FAILED,
            state_since=now,
            error_code=ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR,
            error_message=pairs.missing_side(other),
            sequence=F("sequence") + 1,
        )
        dispatch.send("reconcile_link", link_id=other.pk, probe=True)


def _check_detached(link: ClusterLink, attached: list[str]) -> None:
    if attached:
        raise ConflictError(_still_attached(link, attached), code="LINK_IN_USE")


def _check_finished(link: ClusterLink) -> None:
    """Lock the link's mirrors; raise ConflictError unless all are stopped and no topic deletion is pending."""
    mirrors = list(link.mirrors.select_for_update())
    _check_detached(link, [mirror.name for mirror in mirrors if mirror.state != MirrorState.STOPPED])
    deleting = [mirror.name for mirror in mirrors if mirror.deletion_requested_at is not None]
    if deleting:
        message = (
            f"Topic '{deleting[0]}' of cluster link '{link.name}' is being deleted. Delete the link again when the topic is "
            "gone."
        )
        raise ConflictError(message, code="LINK_IN_USE")


def _request_deletion(link: ClusterLink, *, force: bool, by: Actor, now: datetime) -> None:
    for mirror in link.mirrors.unstopped() if force else ():  # outside of the transaction, which would undo the audit row
        check_approved(mirror, MirrorEvent.FAILOVER, by=by)
    with transaction.atomic():
        attached = list(lock_link(link).mirrors.unstopped())
        if not force:  # mirrors may have been added since the first check
            _check_detached(link, [mirror.name for mirror in attached])
        ClusterLink.objects.filter(pk=link.pk).update(deletion_requested_at=now, deletion_requested_by=by.name)
        audit.record(by=by, action="RequestClusterLinkDeletion", resource=audit.path_of(link), now=now, detail={"force": force})
        for mirror in attached:
            operations.fail_over(mirror=mirror, by=by, now=now)
    dispatch.send("reconcile_link", link_id=link.pk)


def _store(unsaved: linkchecks.UnsavedLink, *, by: Actor, now: datetime) -> ClusterLink:
    """Store the link; if an equal request has stored it since the first check, return that row."""
    link = unsaved.link
    try:
        with transaction.atomic():
            _join_pair_locked(unsaved)
            link.save(force_insert=True)
            LinkConfig.objects.bulk_create(LinkConfig(link=link, name=n, value=v) for n, v in unsaved.others.items())
            audit.record(
                by=by,
                action="CreateClusterLink",
                resource=audit.path_of(link),
                now=now,
                detail={
                    "source_cluster_id": link.source_cluster_id,
                    "configs": unsaved.shown_configs(),
                    "uses_cluster_credentials": link.uses_cluster_credentials,
                },
            )
    except IntegrityError:  # another request has stored the same name
        return _check_concurrent(unsaved, by=by, now=now)
    dispatch.send("reconcile_link", link_id=link.pk)
    dispatch.send("refresh_topics", link_id=link.pk)
    other = pairs.other_side(link)
    if other is not None:
        dispatch.send("reconcile_link", link_id=other.pk, probe=True)
    return link


def _join_pair_locked(unsaved: linkchecks.UnsavedLink) -> None:
    """Set the id of the other side, which may have been created since the first check.

    The locks on both clusters serialize two requests that create the two sides at the same time.
    """
    lock_clusters(unsaved.link.destination.cluster_id, unsaved.link.source_cluster_id)
    linkchecks.join_pair(unsaved.link, unsaved.cluster_link_id)


def _check_concurrent(unsaved: linkchecks.UnsavedLink, *, by: Actor, now: datetime) -> ClusterLink:
    existing = ClusterLink.objects.filter(destination=unsaved.link.destination_id, name=unsaved.link.name).first()
    if existing is None:
        raise ConflictError(
            f"Cluster link '{unsaved.link.name}', or one of its clusters, was deleted at the same time, so the link was not "
            "created. Check that both clusters exist, then retry."
        )
    return _check_repeat(existing, unsaved, by=by, now=now)


def _check_repeat(existing: ClusterLink, unsaved: linkchecks.UnsavedLink, *, by: Actor, now: datetime) -> ClusterLink:
    """Return the existing link if the request is a retry (``linkchecks.is_repeat``); otherwise raise BadRequestError."""
    if linkchecks.is_repeat(existing, unsaved, by=by, now=now):
        return existing
    raise _exists(existing.name)


def _check_name(name: str) -> None:
    try:
        check_link_name(name)
    except LinkEngineError as error:
        raise InvalidInputError(error.message, field="link_name") from error


def _exists(name: str) -> BadRequestError:
    return BadRequestError(
        f"Cluster link '{name}' already exists. Choose another name, or change the existing link.",
        code="LINK_EXISTS",
        field="link_name",
    )


def _still_attached(link: ClusterLink, names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    listed = ", ".join(f"'{name}'" for name in names[:NAMES_SHOWN])
    return (
        f"Cluster link '{link.name}' still has mirror topics that are not stopped: {listed}{more}. "
        "Promote, fail over or delete them first, or delete the link with force, which fails them over."
    )
