"""Creates, configures and deletes cluster links, and runs their recurring tasks on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db import IntegrityError, transaction
from django.db.models import F

from console import audit
from console.access import Permission, check_permission
from console.access.approvals import check_approved
from console.actors import Actor
from console.errors import BadRequestError, ConflictError, InvalidInputError, NotFoundError, UnavailableError
from console.links import checks as link_checks
from console.links import pairs
from console.links.rules import SYNC_OFFSETS, state_of_task, why_not_run
from console.mirrors import operation_actions
from console.models import Cluster, ClusterLink, LinkConfig, LinkTask, RoleBinding
from console.models.fields import readable
from console.models.row_changes import lock_clusters, lock_link
from console.queue import dispatch
from console.verification.drill_actions import check_no_drill
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import NOT_TO_SYNC, GroupStatus
from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection
from linkengine.domain.linkrules import PAUSED as PAUSED_CONFIG
from linkengine.domain.linkrules import with_consequences
from linkengine.domain.linktasks import TaskName, concerned_by, switched_off_by
from linkengine.domain.messages import gettext_lazy, listed_names
from linkengine.domain.names import check_link_name
from linkengine.domain.states import LinkMode, LinkState, MirrorEvent, MirrorState

# --- configs of a link ------------------------------------------------------------------------------------------------
#
# A request is applied as a whole or not at all.


# Configs that copy workers have to be given, beside those of the connection: log start sync and the bandwidth limit.
KNOWN_TO_COPY_TASKS = {"topic.config.sync.include", "link.throughput.limit.bytes.per.second"}
_ACL_CONFIGS = {link_checks.ACL_SYNC, link_checks.ACL_FILTERS}
_SYNC_IS_OFF = gettext_lazy(
    "Consumer offset sync is off (%(enable)s is not true). The group keeps the offsets that it has on the destination.",
    enable=SYNC_OFFSETS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfigChange:
    """A config to set, or to reset to its default (DELETE)."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] = "SET"


def alter_configs(
    *, link: ClusterLink, changes: Sequence[LinkConfigChange], validate_only: bool = False, by: Actor, now: datetime
) -> None:
    """Apply all changes or none; copy workers use the new configs within a second, and the link is probed immediately."""
    check_permission(by, Permission.MANAGE_LINK, link=link)
    wanted = {change.name: change.value if change.operation == "SET" else None for change in changes}
    if len(wanted) != len(changes):
        raise InvalidInputError(gettext_lazy("A config is named twice. Name each config once."), field="data")
    wanted = link_checks.canonical(wanted)
    _check(link, wanted, by=by)
    wanted = with_consequences(wanted)
    if validate_only or not wanted:
        return
    with transaction.atomic():
        locked = lock_link(link)
        locked.uses_cluster_credentials = _check(locked, wanted, by=by)
        _write(locked, wanted, now=now)
        other = _update_copying_side(locked, wanted)
        _audit(locked, wanted, by=by, now=now)
    for side in (link, other):
        if side is not None:
            dispatch.send("reconcile_link", link_id=side.pk, probe=True)


def _check(link: ClusterLink, wanted: dict[str, str | None], *, by: Actor) -> bool:
    """Check the changes; return whether the changed link signs in with the registered cluster's credentials.

    The address is checked only if it changes, so that a link whose address does not work can still be paused.
    """
    before, changed = copy(link), copy(link)
    before.properties = dict(readable(link.properties))
    changed.properties = _merged(before.properties, wanted)
    present: dict[str, str | None] = {
        **before.properties,
        **dict(link.configs.values_list("name", "value")),
        "link.mode": link.mode,
    }
    link_checks.check_values(wanted, present=present)
    link_checks.check_secrets(before.properties, {name: v for name, v in wanted.items() if is_connection(name)})
    link_checks.choose(changed, by=by, before=before)
    reconnects = changed.properties != before.properties
    if reconnects or _ACL_CONFIGS & set(wanted):
        link_checks.check_acl_sync(link, {**present, **wanted}.get, by=by)
    if reconnects:
        link_checks.check_address(changed)
    return changed.uses_cluster_credentials


def _write(link: ClusterLink, wanted: dict[str, str | None], *, now: datetime) -> None:
    others = {name: value for name, value in wanted.items() if not is_connection(name)}
    link.configs.filter(name__in=[name for name, value in others.items() if value is None]).delete()
    for name, value in others.items():
        if value is not None:
            LinkConfig.objects.update_or_create(link=link, name=name, defaults={"value": value})
    link.properties = _merged(link.properties, wanted)
    if PAUSED_CONFIG in wanted:
        _pause_or_resume(link, paused=wanted[PAUSED_CONFIG] == "true", now=now)
    link.tasks.filter(name__in=concerned_by(wanted)).update(next_run_at=None)
    link.tasks.filter(name__in=switched_off_by(wanted)).update(errors=[], error_count=0, failing_since=None, summary="")
    _switch_groups(link, wanted)
    if any(is_connection(name) or name in KNOWN_TO_COPY_TASKS for name in wanted):
        link.revision = F("revision") + 1  # copy workers reconnect with the new settings
    link.sequence = F("sequence") + 1
    link.save()


def _switch_groups(link: ClusterLink, wanted: dict[str, str | None]) -> None:
    if TaskName.CONSUMER_OFFSETS in switched_off_by(wanted):
        set_groups_waiting(link)
    elif SYNC_OFFSETS in wanted:
        clear_waiting_reason(link)


def set_groups_waiting(link: ClusterLink) -> None:
    """Set the status of the link's groups to WAITING because the sync was switched off.

    The rows keep the offsets that are known, for the time when the sync is switched on again.
    """
    link.groups.exclude(status__in=NOT_TO_SYNC).update(status=GroupStatus.WAITING, message=_SYNC_IS_OFF)


def clear_waiting_reason(link: ClusterLink) -> None:
    """Remove the message "sync is off" from waiting groups: the sync was switched on, and they wait for its next run."""
    link.groups.filter(status=GroupStatus.WAITING).update(message="")


def _update_copying_side(link: ClusterLink, wanted: Iterable[str]) -> ClusterLink | None:
    """Return the destination side of a source-initiated link if its ``local.*`` connection configs change here, or None.

    That side copies with these configs, so its revision is increased and its copy workers reconnect.
    """
    used = link.mode == LinkMode.SOURCE and any(name.startswith("local.") and is_connection(name) for name in wanted)
    other = pairs.other_side(link) if used else None
    if other is not None:
        changes = {"revision": F("revision") + 1, "sequence": F("sequence") + 1}
        ClusterLink.objects.filter(pk=other.pk).update(**changes)
    return other


def _pause_or_resume(link: ClusterLink, *, paused: bool, now: datetime) -> None:
    if paused == (link.state == LinkState.PAUSED):
        return
    link.state, link.state_since = LinkState.PAUSED if paused else LinkState.ACTIVE, now
    link.error_code = link.error_message = ""
    if not paused and pairs.needs_other_side(link) and pairs.other_side(link) is None:  # deleted while the link was paused
        link.state, link.error_code = LinkState.FAILED, ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR
        link.error_message = pairs.missing_side(link)


def _merged(properties: Mapping[str, str], wanted: Mapping[str, str | None]) -> Mapping[str, str]:
    """Return the connection with the changes; without changes the stored value itself, also if no key decrypts it."""
    changes = {name: value for name, value in wanted.items() if is_connection(name)}
    if not changes:
        return properties
    return {name: value for name, value in {**readable(properties), **changes}.items() if value is not None}


def _audit(link: ClusterLink, wanted: dict[str, str | None], *, by: Actor, now: datetime) -> None:
    shown = {name: link_checks.MASK if value and LINK_CONFIGS[name].sensitive else value for name, value in wanted.items()}
    detail = {"configs": shown, "uses_cluster_credentials": link.uses_cluster_credentials}
    audit.record(by=by, action="AlterClusterLinkConfigs", resource=audit.path_of(link), now=now, detail=detail)


# --- create and delete ------------------------------------------------------------------------------------------------


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
) -> ClusterLink | link_checks.LinkValidation:
    """Link ``destination`` to a source cluster; with ``validate_only`` store nothing and return the validation.

    ``destination`` is the cluster to which the row belongs and ``source_cluster_id`` the other cluster, whatever the link's
    mode. If ``source_cluster_id`` is empty, it is read from the source. The second side of a pair gets the first side's id;
    ``cluster_link_id``, if given, must equal it. If the source is registered here and the configs have no security that works
    with it, the registered cluster's credentials are used, provided that the actor may use them (``links.checks.choose``).
    With ``validate_link`` the source is contacted, which takes up to ``links.checks.CHECK_TIMEOUT_S``.
    """
    path = f"{audit.path_of(destination)}/link/{name}"
    check_creation(destination=destination, name=name, by=by)
    _check_name(name)
    unsaved = link_checks.unsaved_link(
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
    found = link_checks.LinkValidation(source_cluster_id=unsaved.link.source_cluster_id, distances=None)
    try:
        if validate_link:
            found = link_checks.check_unsaved(unsaved, with_distances=validate_only)
        elif not unsaved.link.source_cluster_id:
            raise InvalidInputError(
                gettext_lazy(
                    "source_cluster_id is missing. Give it, or validate the link, so that the id is read from the source."
                ),
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
        message = gettext_lazy(
            "Topic '%(topic)s' of cluster link '%(link)s' is being deleted. Delete the link again when the topic is gone.",
            topic=deleting[0],
            link=link.name,
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
            operation_actions.fail_over(mirror=mirror, by=by, now=now)
    dispatch.send("reconcile_link", link_id=link.pk)


def _store(unsaved: link_checks.UnsavedLink, *, by: Actor, now: datetime) -> ClusterLink:
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


def _join_pair_locked(unsaved: link_checks.UnsavedLink) -> None:
    """Set the id of the other side, which may have been created since the first check.

    The locks on both clusters serialize two requests that create the two sides at the same time.
    """
    lock_clusters(unsaved.link.destination.cluster_id, unsaved.link.source_cluster_id)
    link_checks.join_pair(unsaved.link, unsaved.cluster_link_id)


def _check_concurrent(unsaved: link_checks.UnsavedLink, *, by: Actor, now: datetime) -> ClusterLink:
    existing = ClusterLink.objects.filter(destination=unsaved.link.destination_id, name=unsaved.link.name).first()
    if existing is None:
        raise ConflictError(
            gettext_lazy(
                "Cluster link '%(link)s', or one of its clusters, was deleted at the same time, so the link was not "
                "created. Check that both clusters exist, then retry.",
                link=unsaved.link.name,
            )
        )
    return _check_repeat(existing, unsaved, by=by, now=now)


def _check_repeat(existing: ClusterLink, unsaved: link_checks.UnsavedLink, *, by: Actor, now: datetime) -> ClusterLink:
    """Return the existing link if the request is a retry (``links.checks.is_repeat``); otherwise raise BadRequestError."""
    if link_checks.is_repeat(existing, unsaved, by=by, now=now):
        return existing
    raise _exists(existing.name)


def _check_name(name: str) -> None:
    try:
        check_link_name(name)
    except LinkEngineError as error:
        raise InvalidInputError(error.message, field="link_name") from error


def _exists(name: str) -> BadRequestError:
    return BadRequestError(
        gettext_lazy("Cluster link '%(name)s' already exists. Choose another name, or change the existing link.", name=name),
        code="LINK_EXISTS",
        field="link_name",
    )


def _still_attached(link: ClusterLink, names: list[str]) -> str:
    return gettext_lazy(
        "Cluster link '%(link)s' still has mirror topics that are not stopped: %(listed)s. Promote, "
        "fail over or delete them first, or delete the link with force, which fails them over.",
        link=link.name,
        listed=listed_names(names, most=NAMES_SHOWN),
    )


# --- run a recurring task now -----------------------------------------------------------------------------------------


def run_task(*, link: ClusterLink, name: str, by: Actor, now: datetime) -> LinkTask:
    """Request an immediate run of a task; if a run is in progress, another run follows it.

    Raises NotFoundError for an unknown task and ConflictError if the task cannot run, for example because it is switched off.
    """
    check_permission(by, Permission.MANAGE_LINK, link=link)
    task_name = _task_name(name)
    row = LinkTask.objects.filter(link=link, name=task_name).first()
    mirrors = link.mirrors.unstopped().exists()
    reason = why_not_run(link, task_name, state=state_of_task(link, task_name, row=row, mirrors=mirrors))
    if reason:
        raise ConflictError(reason, code="TASK_NOT_POSSIBLE")
    with transaction.atomic():
        row, _ = LinkTask.objects.update_or_create(
            link=link, name=task_name, defaults={"requested_at": now, "requested_by": by.name}
        )
        audit.record(by=by, action="RunLinkTask", resource=audit.path_of(link), now=now, detail={"task": task_name})
    dispatch.send("run_link_task", link_id=link.pk, task=task_name)
    return row


def _task_name(name: str) -> TaskName:
    if name not in set(TaskName):
        raise NotFoundError(
            gettext_lazy("Cluster links have no task '%(name)s'. Use one of %(names)s.", name=name, names=", ".join(TaskName)),
            code="UNKNOWN_TASK",
        )
    return TaskName(name)
