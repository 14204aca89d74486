"""Create, configure and delete cluster links."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import F

from console import audit, dispatch, pairs
from console.access import Permission, check_permission
from console.actions import linkchecks, operations
from console.actions.linkconfigs import ConfigChange, alter_configs
from console.actions.rows import lock_clusters, lock_link
from console.actors import Actor
from console.errors import BadRequestError, ConflictError, InvalidInputError, UnavailableError
from console.models import Cluster, ClusterLink, LinkConfig, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.naming import check_link_name
from linkengine.domain.states import LinkState, MirrorState

__all__ = ["ConfigChange", "alter_configs", "create_link", "delete_link", "remove_link"]

NAMES_SHOWN = 5  # in a message that lists mirrors


def create_link(  # noqa: PLR0913 - what a client sends, one keyword each
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
    """Link ``destination`` to a source cluster; for ``validate_only`` store nothing and return what was found.

    ``destination`` is the cluster the row belongs to and ``source_cluster_id`` the other one, whatever the link's mode; the
    second side of a pair takes over the first one's id (``cluster_link_id``, if given, must be that).
    ``source_cluster_id`` may be empty: then the source tells its own. Where the source is registered here and the configs carry
    no security that could work with it, the registered cluster's credentials are used, if the actor may use them
    (``linkcredentials.choose``). With ``validate_link`` the source is asked, which takes up to ``linkchecks.CHECK_TIMEOUT_S``.
    """
    path = f"{audit.path_of(destination)}/link/{name}"
    check_permission(
        by, Permission.MANAGE_LINK, cluster=destination, resource_type=RoleBinding.ResourceType.CLUSTER_LINK, resource_name=name
    )
    _check_name(name)
    draft = linkchecks.draft_link(
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
        return _answer_repeat(existing, draft, by=by, now=now)
    found = linkchecks.LinkValidation(source_cluster_id=draft.link.source_cluster_id, distances=None)
    try:
        if validate_link:
            found = linkchecks.check_draft(draft, with_distances=validate_only)
        elif not draft.link.source_cluster_id:
            raise InvalidInputError("source_cluster_id is needed when the link is not validated.", field="source_cluster_id")
    except UnavailableError as error:
        detail = {"code": error.code, "reason": error.message}
        audit.record(by=by, action="CreateClusterLink", resource=path, now=now, result=audit.Result.FAILURE, detail=detail)
        raise
    return found if validate_only else _store(draft, by=by, now=now)


def delete_link(*, link: ClusterLink, force: bool = False, validate_only: bool = False, by: Actor, now: datetime) -> None:
    """Delete a link; refused while mirrors are attached that are not STOPPED.

    ``force`` fails them over first: the link goes when the last of them is fenced, and their topics stay on the destination as
    ordinary, writable ones. Where the topic of a stopped one is still to be deleted, the link goes after that.
    """
    check_permission(by, Permission.MANAGE_LINK, link=link)
    attached = list(link.mirrors.exclude(state=MirrorState.STOPPED).values_list("name", flat=True))
    if not force:
        _check_detached(link, attached)
    if validate_only:
        return
    if attached or link.mirrors.exclude(deletion_requested_at=None).exists():
        _let_mirrors_go_first(link, force=force, by=by, now=now)
    else:
        remove_link(link=link, by=by, now=now)


def remove_link(*, link: ClusterLink, by: Actor, now: datetime) -> None:
    """Delete the rows of a link whose mirrors are all stopped; their history goes with them, the audit stays.

    Refused while a topic is to be deleted: without the rows nobody would know of it.
    """
    with transaction.atomic():
        locked = lock_link(link)
        _check_finished(locked)
        leave_pair(locked, now=now)
        audit.record(by=by, action="DeleteClusterLink", resource=audit.path_of(link), now=now)
        partitions = {one.engine_name: one.num_partitions for one in locked.mirrors.all()}
        locked.mirrors.all().delete()
        locked.delete()
    dispatch.send("forget_link", link_key=link.link_uuid.hex, partitions=partitions)


def leave_pair(link: ClusterLink, *, now: datetime) -> None:
    """Tell the other side that it is alone: an inbound link does nothing without the side that opens its connections.

    One that a person has paused stays so, and is told when it is resumed.
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
    """Raise ConflictError unless the mirrors are stopped and their topics are to stay; locks them, until the commit."""
    mirrors = list(link.mirrors.select_for_update())
    _check_detached(link, [one.name for one in mirrors if one.state != MirrorState.STOPPED])
    going = [one.name for one in mirrors if one.deletion_requested_at is not None]
    if going:
        message = f"Topic '{going[0]}' of cluster link '{link.name}' is being deleted. Delete the link once more."
        raise ConflictError(message, code="LINK_IN_USE")


def _let_mirrors_go_first(link: ClusterLink, *, force: bool, by: Actor, now: datetime) -> None:
    with transaction.atomic():
        attached = list(lock_link(link).mirrors.exclude(state=MirrorState.STOPPED))
        if not force:  # some may have come since the first look
            _check_detached(link, [one.name for one in attached])
        ClusterLink.objects.filter(pk=link.pk).update(deletion_requested_at=now, deletion_requested_by=by.name)
        audit.record(by=by, action="RequestClusterLinkDeletion", resource=audit.path_of(link), now=now, detail={"force": force})
        for mirror in attached:
            operations.fail_over(mirror=mirror, by=by, now=now)
    dispatch.send("reconcile_link", link_id=link.pk)


def _store(draft: linkchecks.LinkDraft, *, by: Actor, now: datetime) -> ClusterLink:
    """Store the link; where an equal request was quicker, the answer is that one's row."""
    link = draft.link
    try:
        with transaction.atomic():
            _join_pair_again(draft)
            link.save(force_insert=True)
            LinkConfig.objects.bulk_create(LinkConfig(link=link, name=n, value=v) for n, v in draft.others.items())
            audit.record(
                by=by,
                action="CreateClusterLink",
                resource=audit.path_of(link),
                now=now,
                detail={
                    "source_cluster_id": link.source_cluster_id,
                    "configs": draft.shown_configs(),
                    "uses_cluster_credentials": link.uses_cluster_credentials,
                },
            )
    except IntegrityError:  # somebody was quicker
        return _answer_quicker(draft, by=by, now=now)
    dispatch.send("reconcile_link", link_id=link.pk)
    dispatch.send("refresh_topics", link_id=link.pk)
    other = pairs.other_side(link)
    if other is not None:
        dispatch.send("reconcile_link", link_id=other.pk, probe=True)
    return link


def _join_pair_again(draft: linkchecks.LinkDraft) -> None:
    """Take over the id of the other side, which may have been made since the first look; of two at once one comes second."""
    lock_clusters(draft.link.destination.cluster_id, draft.link.source_cluster_id)
    linkchecks.join_pair(draft.link, draft.cluster_link_id)


def _answer_quicker(draft: linkchecks.LinkDraft, *, by: Actor, now: datetime) -> ClusterLink:
    existing = ClusterLink.objects.filter(destination=draft.link.destination_id, name=draft.link.name).first()
    if existing is None:
        raise ConflictError(
            f"Cluster link '{draft.link.name}', or one of its clusters, was deleted at the same moment. Look again, then retry."
        )
    return _answer_repeat(existing, draft, by=by, now=now)


def _answer_repeat(existing: ClusterLink, draft: linkchecks.LinkDraft, *, by: Actor, now: datetime) -> ClusterLink:
    """Let a client ask again that never heard of its success: see ``linkchecks.is_repeat``."""
    if linkchecks.is_repeat(existing, draft, by=by, now=now):
        return existing
    raise _exists(existing.name)


def _check_name(name: str) -> None:
    try:
        check_link_name(name)
    except LinkEngineError as error:
        raise InvalidInputError(error.message, field="link_name") from error


def _exists(name: str) -> BadRequestError:
    return BadRequestError(f"Cluster link '{name}' already exists.", code="LINK_EXISTS", field="link_name")


def _still_attached(link: ClusterLink, names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    listed = ", ".join(f"'{name}'" for name in names[:NAMES_SHOWN])
    return (
        f"Cluster link '{link.name}' still has mirror topics that are not stopped: {listed}{more}. "
        "Promote, fail over or delete them first, or delete the link with force, which fails them over."
    )
