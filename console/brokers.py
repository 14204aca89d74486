"""The way from a request to a cluster's own answer: a question for a worker, its refusal in our words. Knows no permissions."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from console import audit, dispatch
from console.actors import Actor
from console.errors import NotFoundError, UnavailableError, from_cluster
from console.models import Cluster
from linkengine.domain.errors import LinkEngineError

CALL_TIMEOUT_S = 30.0  # the engine gives one request up after 15 s; the largest question asks a few after each other
_UNKNOWN = (
    f"Nobody knows whether the change was made, or will be within the next {CALL_TIMEOUT_S:.0f} s (not later): look at the "
    "cluster before you repeat it."
)


def ask(cluster: Cluster, question: str, **asked: Any) -> Any:
    """Ask the cluster; raise ConsoleError as it answers, or UnavailableError where nobody does.

    Questions are those of ``console.tasks.browsing``; answers are plain values in the words of
    ``linkengine.domain.clusterviews``.
    """
    try:
        return dispatch.call("ask_cluster", timeout_s=CALL_TIMEOUT_S, cluster_pk=cluster.pk, question=question, asked=asked)
    except LinkEngineError as error:
        raise from_cluster(error) from error


def change(
    cluster: Cluster,
    question: str,
    *,
    action: str,
    resource: str,
    detail: dict[str, Any],
    by: Actor,
    now: datetime,
    answer_as: str = "",
    **asked: Any,
) -> Any:
    """Have the cluster change something; raise ConsoleError as it answers.

    The task that makes the change writes its audit row (``audit.carried_out``), so no change is without one; with
    ``answer_as`` the row has the cluster's answer under that name. Where no task
    answers, a row says that the outcome is unknown, and so does the error. Nothing of ours is stored for the change, so no
    task makes it later: one that no worker has begun by then expires.
    """
    entry = audit.entry(by=by, action=action, resource=resource, detail=detail, answer_as=answer_as)
    about = {"cluster_pk": cluster.pk, "question": question, "asked": asked, "entry": entry}
    try:
        return dispatch.call("change_cluster", timeout_s=CALL_TIMEOUT_S, change_id=uuid.uuid4().hex, **about)
    except LinkEngineError as error:
        raise from_cluster(error) from error
    except UnavailableError as error:
        unknown = {**detail, "code": error.code, "reason": error.message}
        audit.record(by=by, action=action, resource=resource, now=now, result=audit.Result.UNKNOWN, detail=unknown)
        raise UnavailableError(f"{error.message} {_UNKNOWN}", code=error.code) from error


def no_topic(name: str) -> NotFoundError:
    """Answer the error of a topic that is not there, or may not be seen."""
    return NotFoundError(f"Topic '{name}' cannot be found on this cluster.", code="TOPIC_NOT_FOUND")
