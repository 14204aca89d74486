"""The way from a request to a cluster's own answer: a question for a worker, its refusal in our words. Knows no permissions."""

from __future__ import annotations

from typing import Any

from console import dispatch
from console.errors import NotFoundError, from_cluster
from console.models import Cluster
from linkengine.domain.errors import LinkEngineError

CALL_TIMEOUT_S = 30.0  # the engine gives one request up after 15 s; the largest question asks a few after each other


def ask(cluster: Cluster, question: str, **asked: Any) -> Any:
    """Ask the cluster; raise ConsoleError as it answers, or UnavailableError where nobody does.

    Questions are those of ``console.tasks.browsing``; answers are plain values in the words of
    ``linkengine.domain.clusterviews``.
    """
    try:
        return dispatch.call("ask_cluster", timeout_s=CALL_TIMEOUT_S, cluster_pk=cluster.pk, question=question, asked=asked)
    except LinkEngineError as error:
        raise from_cluster(error) from error


def no_topic(name: str) -> NotFoundError:
    """Answer the error of a topic that is not there, or may not be seen."""
    return NotFoundError(f"Topic '{name}' cannot be found on this cluster.", code="TOPIC_NOT_FOUND")
