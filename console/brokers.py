"""The way from a request to a cluster's own answer: a question for a worker, its refusal in our words. Knows no permissions."""

from __future__ import annotations

from typing import Any

from console import dispatch
from console.errors import CLUSTER_AWAY, NotFoundError, UnavailableError, from_cluster
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


def change(cluster: Cluster, question: str, **asked: Any) -> Any:
    """Have the cluster change something; where nobody answers, the error says what can be known: not whether it was done.

    Nothing of ours is stored for it, so nobody does it later: a task that no worker has begun by then expires.
    """
    try:
        return ask(cluster, question, **asked)
    except UnavailableError as error:
        if error.code == CLUSTER_AWAY:  # the engine has asked, in vain; its message says so
            raise
        raise UnavailableError(f"{error.message} {_UNKNOWN}", code=error.code) from error


def no_topic(name: str) -> NotFoundError:
    """Answer the error of a topic that is not there, or may not be seen."""
    return NotFoundError(f"Topic '{name}' cannot be found on this cluster.", code="TOPIC_NOT_FOUND")
