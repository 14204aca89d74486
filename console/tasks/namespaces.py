"""Guards reserved namespaces on the cluster itself: a DENY CREATE ACL on the prefix. Super users are not affected."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task

from console.models import Namespace
from console.queue import dispatch
from console.redis import locks
from linkengine import jobs
from linkengine.domain.acls import namespace_guard
from linkengine.domain.errors import ErrorCode, LinkEngineError

RESEND_MS = 30_000
_log = structlog.get_logger(__name__)


@shared_task(name="guard_namespace")
def guard_namespace(*, namespace_id: int, **_: Any) -> None:
    """Create or delete the ACL, as the row says. If the cluster refuses, the reason is stored in the row.

    If the cluster is not available, the task is sent again. A row that is to be deleted stays until its ACL is deleted.
    """
    namespace = Namespace.objects.select_related("cluster").filter(pk=namespace_id).first()
    if namespace is None:
        return
    as_read = {"reserved": namespace.reserved, "deletion_requested_at": namespace.deletion_requested_at}
    rows = Namespace.objects.filter(pk=namespace_id, **as_read)  # if changed since, the task is sent again
    try:
        problem = _refusal(namespace)
    except LinkEngineError as error:
        _log.info("namespace.not_guarded", prefix=namespace.prefix, code=error.code)
        rows.update(guard_problem=error.message)
        return
    if namespace.deletion_requested_at is None:
        rows.update(guarded=namespace.reserved and not problem, guard_problem=problem)
    elif problem:
        rows.update(guard_problem=problem)
    else:
        rows.delete()


def look_after_namespaces() -> None:
    """Send the task again for namespaces whose ACL is not as it should be."""
    for namespace_id in Namespace.objects.filter(guarded=None).values_list("pk", flat=True):
        if locks.claim(f"namespace:{namespace_id}", ttl_ms=RESEND_MS):
            dispatch.send("guard_namespace", namespace_id=namespace_id)


def _refusal(namespace: Namespace) -> str:
    """Change the ACL. Return why the cluster refuses, or "". Raises LinkEngineError if the cluster is not available."""
    prefix, reserved = namespace.prefix, namespace.reserved
    if not prefix:
        return "Kafka has no ACL for all topics except internal ones, so only this console reserves it." if reserved else ""
    rule = namespace_guard(prefix)
    changes = {"create": [rule]} if reserved else {"delete": [rule]}
    refused = jobs.change_acls(namespace.cluster.address, **changes).get(rule)
    if refused is None or (not reserved and refused.code == ErrorCode.SECURITY_DISABLED_ERROR):  # nothing to delete
        return ""
    return refused.message
