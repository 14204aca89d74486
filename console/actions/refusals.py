"""Retries topic config changes that the destination refused when a mirror was stopped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.errors import ConflictError, from_cluster
from console.mirrors.rules import why_not_retry
from console.models import MirrorTopic
from console.queue import dispatch
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import RefusedStep

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
        rows = dispatch.call("give_configs_back", timeout_s=RETRY_TIMEOUT_S, mirror_id=mirror.pk)
    except LinkEngineError as error:
        detail = {"code": error.code, "reason": error.message}
        audit.record(by=by, action=action, resource=resource, now=now, result=audit.Result.FAILURE, detail=detail)
        raise from_cluster(error) from error
    refused = [RefusedStep(**row) for row in rows]
    audit.record(by=by, action=action, resource=resource, now=now, detail={"refused": [step.name for step in refused]})
    return refused
