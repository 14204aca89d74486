"""Has the cluster itself keep others out of a reserved namespace: DENY CREATE on the prefix; super users pass."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task

from console import dispatch, store
from console.models import Cluster, Namespace
from linkengine import jobs
from linkengine.domain.acls import namespace_guard
from linkengine.domain.errors import LinkEngineError

RESEND_MS = 30_000
_log = structlog.get_logger(__name__)


@shared_task(name="guard_namespace")
def guard_namespace(*, namespace_id: int, **_: Any) -> None:
    """Set or remove the rule, as the row says; a cluster that refuses leaves its reason on the row."""
    namespace = Namespace.objects.select_related("cluster").filter(pk=namespace_id).first()
    if namespace is None:
        return
    problem = _problem(namespace.cluster, namespace.prefix, reserved=namespace.reserved)
    rows = Namespace.objects.filter(pk=namespace_id, reserved=namespace.reserved)  # changed meanwhile: asked for again
    rows.update(guarded=namespace.reserved and not problem, guard_problem=problem)


@shared_task(name="unguard_prefix")
def unguard_prefix(*, cluster_id: int, prefix: str, **_: Any) -> None:
    """Remove the rule of a namespace that is gone."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is not None and not Namespace.objects.filter(cluster=cluster, prefix=prefix, reserved=True).exists():
        _problem(cluster, prefix, reserved=False)


def look_after_namespaces() -> None:
    """Try again where the rule is not as it should be."""
    for namespace_id in Namespace.objects.filter(guarded=None).values_list("pk", flat=True):
        if store.claim(f"namespace:{namespace_id}", ttl_ms=RESEND_MS):
            dispatch.send("guard_namespace", namespace_id=namespace_id)


def _problem(cluster: Cluster, prefix: str, *, reserved: bool) -> str:
    if not prefix:
        return "Kafka has no rule for all topics but internal ones; only this console keeps others out." if reserved else ""
    rule = namespace_guard(prefix)
    changes = {"create": [rule]} if reserved else {"delete": [rule]}
    try:
        refused = jobs.change_acls(cluster.address, **changes)
    except LinkEngineError as error:
        _log.info("namespace.not_guarded", prefix=prefix, code=error.code)
        return error.message
    return refused[rule].message if rule in refused else ""
