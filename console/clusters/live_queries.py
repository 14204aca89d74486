"""Runs live queries and changes on a cluster through a worker, and translates errors. Checks no permissions."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from console import audit
from console.actors import Actor
from console.errors import NotFoundError, UnavailableError, from_cluster
from console.models import Cluster
from console.queue import dispatch
from linkengine.domain.errors import LinkEngineError

CALL_TIMEOUT_S = 30.0  # the engine's request timeout is 15 s; the largest query makes a few requests in sequence
_UNKNOWN = (
    f"It is unknown whether the change was made; it may still be made within the next {CALL_TIMEOUT_S:.0f} s. Check the "
    "cluster before you repeat it."
)


def run_query(cluster: Cluster, query: str, **arguments: Any) -> Any:
    """Run a query of ``console.tasks.clusters.QUERIES`` on a cluster and return its result.

    Results are plain values as in ``linkengine.domain.clusterviews``. Raises the ConsoleError for the cluster's error, or
    UnavailableError if no worker responds.
    """
    try:
        return dispatch.call("query_cluster", timeout_s=CALL_TIMEOUT_S, cluster_pk=cluster.pk, query=query, arguments=arguments)
    except LinkEngineError as error:
        raise from_cluster(error) from error


def change(
    cluster: Cluster,
    query: str,
    *,
    action: str,
    resource: str,
    detail: dict[str, Any],
    by: Actor,
    now: datetime,
    answer_as: str = "",
    **arguments: Any,
) -> Any:
    """Make a change of ``console.tasks.clusters.CHANGES`` on a cluster and return its result. Raises ConsoleError.

    The task that makes the change writes its audit row (``audit.carried_out``), so there is no change without one; with
    ``answer_as`` the row has the cluster's response under that name. If no worker responds, a row says that the outcome is
    unknown, and so does the error. No row of the console asks for the change, so it is not made later: a message that no
    worker takes by then expires.
    """
    entry = audit.entry(by=by, action=action, resource=resource, detail=detail, answer_as=answer_as)
    about = {"cluster_pk": cluster.pk, "query": query, "arguments": arguments, "entry": entry}
    try:
        return dispatch.call("change_cluster", timeout_s=CALL_TIMEOUT_S, change_id=uuid.uuid4().hex, **about)
    except LinkEngineError as error:
        raise from_cluster(error) from error
    except UnavailableError as error:
        unknown = {**detail, "code": error.code, "reason": error.message}
        audit.record(by=by, action=action, resource=resource, now=now, result=audit.Result.UNKNOWN, detail=unknown)
        raise UnavailableError(f"{error.message} {_UNKNOWN}", code=error.code) from error


def no_topic(name: str) -> NotFoundError:
    """Return the error for a topic that does not exist or that the user may not see."""
    return NotFoundError(f"Topic '{name}' cannot be found on this cluster.", code="TOPIC_NOT_FOUND")
