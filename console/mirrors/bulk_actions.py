"""Operations on several mirror topics: stored with a row per topic, then carried out by a worker in batches.

A topic's row and the change of its mirror are stored in the same transaction, under a lock on the row. So a topic is operated
on once, also if two workers have the same message or a worker crashes, and a canceled topic has not begun. The operation
applies to the mirrors that the confirmation showed, not to others that have been added under their names since.

REST, whose response has the result of each topic, operates at once and stores the operation with its results (``operate_now``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from django.db import IntegrityError, InterfaceError, OperationalError, transaction

from console import audit
from console.access import Permission, can, check_permission, links_with_sight, visible_mirrors
from console.actors import Actor
from console.errors import ConflictError, ConsoleError, InvalidInputError
from console.mirrors import actions as mirror_actions
from console.mirrors import operation_actions
from console.mirrors.operation_actions import OperationResult
from console.mirrors.rules import permission_for
from console.models import BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic, RoleBinding
from console.models.links import show_change
from console.models.row_changes import lock_link
from console.queue import dispatch
from console.verification import actions as verification_actions
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkrules import CONFIG as START_SPEC
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import OPERATIONS, MirrorEvent

Status = BulkOperationTopic.Status
MOST = 10_000  # topics of an operation
TOGETHER = 1_000  # topics that are changed with a few SQL statements, per transaction
BATCH = 16  # other topics per call of ``carry_out``
LONGEST_NAME = 249  # of a topic; REST may name others, which do not exist
_UNEXPECTED = "The operation failed unexpectedly; the worker's log has the details."
_log = structlog.get_logger(__name__)
CheckClusters = Callable[[Sequence[MirrorTopic]], Sequence[LinkEngineError | None]]


def start(
    *,
    link: ClusterLink,
    operation: str,
    topics: Mapping[str, MirrorTopic | None],
    options: Mapping[str, Any] | None = None,
    retry_of: BulkOperation | None = None,
    by: Actor,
    now: datetime,
) -> BulkOperation:
    """Store an operation on several topics of a link; a worker carries it out.

    ``topics`` maps names to the mirrors that the confirmation showed, None for mirrors that are to be created. Raises
    DeniedError if the actor may operate on none of the topics; the others are refused individually.
    """
    if not topics:
        raise InvalidInputError(gettext_lazy("No topics are selected. Nothing was changed."), field="topics")
    check_number(len(topics))
    if any(len(name) > LONGEST_NAME for name in topics):
        raise InvalidInputError(
            gettext_lazy("The name of a topic has at most %(most)s characters.", most=LONGEST_NAME),
            field="topics",
        )
    _check_any(link, operation, topics, by=by)
    with transaction.atomic():
        lock_link(link)
        stored = _create(link, operation, options=options or {}, retry_of=retry_of, by=by, now=now)
        rows = [_row(stored, name, mirror) for name, mirror in topics.items()]
        BulkOperationTopic.objects.bulk_create(rows, batch_size=TOGETHER)
        _audit("StartBulkOperation", stored, link, topics=len(rows), by=by, now=now)
    dispatch.send("advance_bulk_operation", operation_id=stored.pk)
    return stored


def check_number(topics: int) -> None:
    """Raise InvalidInputError if an operation cannot take so many topics: it never takes some of them instead."""
    if topics > MOST:
        raise InvalidInputError(
            gettext_lazy(
                "%(number)s topics are selected, and an operation takes at most %(most)s. Nothing was changed. Narrow the "
                "filter, then repeat the operation for the other topics.",
                number=f"{topics:,}",
                most=f"{MOST:,}",
            )
        )


def operate_now(
    *, link: ClusterLink, operation: MirrorEvent, validate_only: bool, by: Actor, now: datetime, **chosen: Any
) -> list[OperationResult]:
    """Operate on several mirrors within the request (``operation_actions``) and store the operation with its results."""
    results = operation_actions.operate_many(
        link=link, operation=operation, validate_only=validate_only, by=by, now=now, **chosen
    )
    possible = [result for result in results if len(result.mirror_topic_name) <= LONGEST_NAME]
    if validate_only or len(possible) < 2:
        return results
    with suppress(IntegrityError), transaction.atomic():  # the link was deleted; the results are returned nevertheless
        stored = _create(link, operation, finished_at=now, by=by, now=now)
        rows = [_noted(BulkOperationTopic(operation=stored), result, now=now) for result in possible]
        BulkOperationTopic.objects.bulk_create(rows, batch_size=TOGETHER)
        _audit("StartBulkOperation", stored, link, topics=len(rows), by=by, now=now)
    return results


def cancel(*, operation: BulkOperation, by: Actor, now: datetime) -> int:
    """Cancel the topics that have not begun and return their number; the others are not changed.

    Raises ConflictError if no topic is waiting, or the link was deleted: the worker then refuses the topics. The requester may
    cancel, and actors who may start the operation on all topics of the link.
    """
    link = link_of(operation)
    if not may_cancel(operation, by=by):
        check_permission(by, _permission(operation.operation), link=link)
    with transaction.atomic():
        canceled = operation.topics.filter(status=Status.WAITING).update(status=Status.CANCELED, done_at=now)
        if not canceled:
            raise ConflictError(gettext_lazy("All topics of this operation are done, so nothing was canceled."))
        BulkOperation.objects.filter(pk=operation.pk).update(canceled_by=by.name, finished_at=now)
        _audit("CancelBulkOperation", operation, link, topics=canceled, by=by, now=now)
        show_change(link.pk)
    return canceled


def may_cancel(operation: BulkOperation, *, by: Actor) -> bool:
    """Return whether the actor may cancel the operation. No query beside the actor's bindings."""
    own = by.user is not None and operation.user_id == by.user.pk
    return own or (operation.link is not None and can(by, _permission(operation.operation), link=operation.link))


def retry_creation(*, operation: BulkOperation, by: Actor, now: datetime) -> BulkOperation:
    """Start another operation that creates the mirrors that failed, with the same options."""
    if operation.operation != BulkOperation.CREATE:
        raise ConflictError(gettext_lazy("Only the creation of mirror topics is retried without a confirmation."))
    link, failed = link_of(operation), dict.fromkeys(failed_names(operation))
    if not failed:
        raise ConflictError(gettext_lazy("No topic of this operation has failed, so there is nothing to retry."))
    return start(
        link=link,
        operation=operation.operation,
        topics=failed,
        options=operation.options,
        retry_of=operation,
        by=by,
        now=now,
    )


def link_of(operation: BulkOperation) -> ClusterLink:
    """Return the link of an operation; raise ConflictError if it was deleted."""
    if operation.link is None:
        raise ConflictError(_link_deleted(operation))
    return operation.link


def _link_deleted(operation: BulkOperation) -> str:
    return (
        f"Nothing was changed: cluster link '{operation.link_name}' has been deleted since the operation was requested. If a "
        "link has taken its place, request the operation there."
    )


def failed_names(operation: BulkOperation) -> list[str]:
    """Return the names of the topics that failed."""
    return list(operation.topics.filter(status=Status.FAILED).values_list("name", flat=True))


def carry_out(operation: BulkOperation, *, check_clusters: CheckClusters, now: datetime) -> bool:
    """Carry out the next topics; return whether some are still waiting.

    ``check_clusters`` returns, for mirrors that are to be created, why the clusters refuse each.
    """
    by, link = actor_of(operation), operation.link
    if link is None:
        refused = {"status": Status.FAILED, "error_code": "UNKNOWN_LINK", "message": _link_deleted(operation), "done_at": now}
        operation.topics.filter(status=Status.WAITING).update(**refused)
    elif operation.operation == BulkOperation.CREATE:
        _create_mirrors(operation, link, check_clusters, by=by, now=now)
    elif operation.operation not in operation_actions.SIMPLE or not _operate_together(operation, link, by=by, now=now):
        for row in operation.topics.filter(status=Status.WAITING)[:BATCH]:
            _do_once(operation, row, partial(_result, operation, link, by=by, now=now), now=now)
    if link is not None:
        show_change(link.pk)
    if operation.topics.filter(status=Status.WAITING).exists():
        return True
    BulkOperation.objects.filter(pk=operation.pk, finished_at=None).update(finished_at=now)
    return False


def actor_of(operation: BulkOperation) -> Actor:
    """Return the user who requested the operation, with the roles of today."""
    return Actor(
        name=operation.requested_by,
        user=operation.user,
        request_id=operation.request_id,
        client_address=operation.client_address,
    )


def _operate_together(operation: BulkOperation, link: ClusterLink, *, by: Actor, now: datetime) -> bool:
    """Operate, within a transaction, on the topics that can be changed together; return whether there were any.

    The others are changed individually: they may lock rows of the other side too, which must not wait while the rows of many
    mirrors are locked. An unexpected error leaves all of them to that.
    """
    try:
        with transaction.atomic():
            waiting = operation.topics.select_for_update().filter(status=Status.WAITING)
            rows = {row.name: row for row in waiting[:TOGETHER]}
            found = visible_mirrors(by).filter(link=link, name__in=list(rows)).with_links(links_with_sight(by))
            confirmed = [mirror for mirror in found if not _why_other(rows[mirror.name], mirror)]
            moved = operation_actions.operate_together(confirmed, MirrorEvent(operation.operation), by=by, now=now)
            operation.topics.filter(name__in=list(moved)).update(status=Status.ACCEPTED, done_at=now)
    except (OperationalError, InterfaceError):
        raise
    except Exception:  # noqa: BLE001 - see ``_do_once``
        _log.exception("bulk_operation.batch_failed", operation=operation.pk)
        return False
    return bool(moved)


def _do_once(
    operation: BulkOperation, row: BulkOperationTopic, act: Callable[[BulkOperationTopic], OperationResult], *, now: datetime
) -> None:
    """Act on a topic that is still waiting and store the result in the same transaction.

    An unexpected error of one topic does not affect the others.
    """
    try:
        with transaction.atomic():
            locked = operation.topics.select_for_update().filter(pk=row.pk, status=Status.WAITING).first()
            if locked is not None:
                _noted(locked, act(locked), now=now).save()
    except (OperationalError, InterfaceError):  # an outage or a deadlock: the reconciler sends the task again
        raise
    except Exception:  # noqa: BLE001 - logged with traceback and stored as the result of this topic
        _log.exception("bulk_operation.topic_failed", operation=operation.pk, topic=row.name)
        _note_unexpected(operation, row, now=now)


def _result(
    operation: BulkOperation, link: ClusterLink, row: BulkOperationTopic, *, by: Actor, now: datetime
) -> OperationResult:
    mirror = visible_mirrors(by).filter(link=link, name=row.name).with_links(links_with_sight(by)).first()
    if mirror is None:
        return operation_actions.refusal_of(row.name, operation_actions.unknown_mirror(row.name, link))
    other = _why_other(row, mirror) or _why_restored_otherwise(operation, row, mirror)
    if other:
        return operation_actions.refusal_of(row.name, ConflictError(other), mirror=mirror)
    if operation.operation != BulkOperation.VERIFY:
        return operation_actions.operate_row(mirror, MirrorEvent(operation.operation), seen=row.seen, by=by, now=now)
    try:
        verification_actions.start_verify(mirror=mirror, by=by, now=now)
    except ConsoleError as error:
        return operation_actions.refusal_of(row.name, error, mirror=mirror)
    return OperationResult(mirror_topic_name=row.name, mirror=mirror)


def _why_other(row: BulkOperationTopic, mirror: MirrorTopic) -> str:
    """Return why the operation does not apply to the mirror of this name; "" if it does."""
    if row.mirror_id in (None, mirror.pk):
        return ""
    return (
        f"Nothing was changed: mirror topic '{row.name}' was deleted and added again since the operation was requested. Check "
        "the new mirror topic, then request the operation again if it should apply to it."
    )


def _why_restored_otherwise(operation: BulkOperation, row: BulkOperationTopic, mirror: MirrorTopic) -> str:
    """Return why a restore would drop other records than those that the confirmation counted; "" if it would not.

    The state of a deletion is compared under a lock, by ``operation_actions.delete_as_seen``.
    """
    if operation.operation != MirrorEvent.RESTORE or row.seen in ("", operation_actions.seen_state(mirror)):
        return ""
    return (
        f"Nothing was changed: mirror topic '{row.name}' has changed since the operation was requested and is {mirror.state} "
        "now. Read the confirmation again, which shows what a restore would drop now."
    )


def _create_mirrors(
    operation: BulkOperation, link: ClusterLink, check_clusters: CheckClusters, *, by: Actor, now: datetime
) -> None:
    """Create the next mirrors, after a check of all of them on both clusters, which takes no transaction."""
    options = operation.options
    rows = list(operation.topics.filter(status=Status.WAITING)[:BATCH])
    drafts = [mirror_actions.unsaved_mirror(link=link, source_topic=row.name, by=by, now=now) for row in rows]
    for mirror in drafts:
        mirror.replication_factor = options.get("replication_factor")
        mirror.start_spec = options.get("start") or mirror.start_spec
    for row, refusal in zip(rows, check_clusters(drafts), strict=True):
        _do_once(operation, row, partial(_created, operation, link, check=_raising(refusal), by=by, now=now), now=now)


def _created(
    operation: BulkOperation,
    link: ClusterLink,
    row: BulkOperationTopic,
    *,
    check: Callable[[], None],
    by: Actor,
    now: datetime,
) -> OperationResult:
    options = operation.options
    try:
        mirror = mirror_actions.create_mirror(
            link=link,
            source_topic=row.name,
            replication_factor=options.get("replication_factor"),
            configs={START_SPEC: options.get("start", "")},
            check_clusters=check,
            by=by,
            now=now,
        )
    except ConsoleError as error:
        return operation_actions.refusal_of(row.name, error)
    return OperationResult(mirror_topic_name=row.name, mirror=mirror)


def _raising(refusal: LinkEngineError | None) -> Callable[[], None]:
    def check() -> None:
        if refusal is not None:
            raise refusal

    return check


def _row(operation: BulkOperation, name: str, mirror: MirrorTopic | None) -> BulkOperationTopic:
    if mirror is None:
        return BulkOperationTopic(operation=operation, name=name)
    return BulkOperationTopic(operation=operation, name=name, mirror_id=mirror.pk, seen=operation_actions.seen_state(mirror))


def _noted(row: BulkOperationTopic, result: OperationResult, *, now: datetime) -> BulkOperationTopic:
    """Set the result of a topic in its row, without storing it."""
    row.name, row.done_at = result.mirror_topic_name, now
    row.status = Status.FAILED if result.error_code else Status.ACCEPTED
    row.error_code, row.message = result.code, result.error_message or ""
    if result.mirror is not None and row.mirror_id is None:
        row.mirror_id = result.mirror.pk
    return row


def _note_unexpected(operation: BulkOperation, row: BulkOperationTopic, *, now: datetime) -> None:
    failed = {"status": Status.FAILED, "error_code": "INTERNAL_ERROR", "message": _UNEXPECTED, "done_at": now}
    operation.topics.filter(pk=row.pk, status=Status.WAITING).update(**failed)


def _create(link: ClusterLink, operation: str, *, by: Actor, now: datetime, **more: Any) -> BulkOperation:
    return BulkOperation.objects.create(
        link=link,
        operation=str(operation),
        user=by.user,
        requested_by=by.name,
        requested_at=now,
        request_id=by.request_id,
        client_address=by.client_address,
        **more,
    )


def _audit(action: str, operation: BulkOperation, link: ClusterLink, *, topics: int, by: Actor, now: datetime) -> None:
    """Add the audit row of the operation, which names it; each topic has a row of its own."""
    detail = {"bulk_operation": operation.pk, "operation": operation.operation, "topics": topics}
    audit.record(by=by, action=action, resource=audit.path_of(link), now=now, detail=detail)


def _check_any(link: ClusterLink, operation: str, names: Iterable[str], *, by: Actor) -> None:
    """Raise DeniedError unless the actor may operate on at least one of the topics."""
    permission, prefix = _permission(operation), link.prefix if operation == BulkOperation.CREATE else ""
    topic = RoleBinding.ResourceType.TOPIC
    if not any(can(by, permission, link=link, resource_type=topic, resource_name=f"{prefix}{name}") for name in names):
        check_permission(by, permission, link=link)


def _permission(operation: str) -> Permission:
    if operation in OPERATIONS:
        return permission_for(MirrorEvent(operation))
    return {BulkOperation.CREATE: Permission.MANAGE_MIRROR, BulkOperation.VERIFY: Permission.VERIFY}[operation]
