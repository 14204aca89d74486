"""Sends Celery tasks by name. Tasks are never imported here, so that the web process loads neither Spark nor Kafka.

``send`` waits for the commit. The reconciler resends lost tasks. ``send`` therefore never fails or delays a request whose rows
are stored: after a failed message, sending is skipped for ``UNSENT_S``. ``call`` waits for a reply. Secrets are sent encrypted
(``console.models.fields.seal``), since the queue is not confidential.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import redis
import structlog
from django.db import transaction
from kombu.exceptions import OperationalError

from console.celery import app
from console.config.logging import current_request_id
from console.errors import UnavailableError
from console.redis import heartbeats as redis_health
from console.redis import replies
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import gettext_lazy

SEND_EXPIRES_S = 60  # the reconciler has sent it again by then
UNSENT_S = 3.0  # after a failed message; each attempt may take 5 s, and a failover of twenty mirrors sends forty
WORKER_SILENT_MS = 10_000  # a worker reconciles every second; ten missing passes count as an outage
_NOT_SENT = gettext_lazy(
    "Redis does not respond, so no request can be sent to the engine. Start Redis or correct CLUSTERLINK_REDIS_URL, then retry."
)
_OUTCOME_UNKNOWN = gettext_lazy(
    "Redis does not respond, so the outcome of the request is unknown; the engine may have carried it out. Start Redis or "
    "correct CLUSTERLINK_REDIS_URL, then retry."
)
_log = structlog.get_logger(__name__)


class _Queue:
    """State of the work queue as this process last observed it."""

    unsent_until_s = 0.0  # monotonic


def send(task_name: str, **kwargs: Any) -> None:
    """Send a task once the current transaction is committed. An outage is logged, not raised: the change is stored."""
    transaction.on_commit(lambda: _send(task_name, kwargs))


def call(task_name: str, *, timeout_s: float, **kwargs: Any) -> Any:
    """Run a task now and return its result.

    Raises the task's LinkEngineError, or UnavailableError if no worker responds in time.
    """
    reply_to = f"console:reply:{uuid.uuid4().hex}"
    try:
        app.send_task(task_name, kwargs={**kwargs, "reply_to": reply_to}, expires=timeout_s, retry=False, headers=_headers())
    except (OperationalError, redis.RedisError) as error:
        raise UnavailableError(_NOT_SENT, code="QUEUE_UNAVAILABLE") from error
    try:
        response = replies.wait_for_reply(reply_to, timeout_s=timeout_s)
    except redis.RedisError as error:
        raise UnavailableError(_OUTCOME_UNKNOWN, code="QUEUE_UNAVAILABLE") from error
    if response is None:
        raise UnavailableError(_why_silent(task_name, timeout_s), code="WORKER_UNAVAILABLE")
    if "unavailable" in response:
        raise UnavailableError(response["unavailable"], code="DATABASE_UNAVAILABLE")
    if "error" in response:
        raise LinkEngineError(ErrorCode(response["error"]["code"]), response["error"]["message"])
    return response["result"]


def _send(task_name: str, kwargs: dict[str, Any]) -> None:
    if time.monotonic() < _Queue.unsent_until_s:
        _log.info("dispatch.skipped_during_outage", task=task_name)
        return
    try:
        app.send_task(task_name, kwargs=kwargs, expires=SEND_EXPIRES_S, retry=False, headers=_headers())
    except (OperationalError, redis.RedisError) as error:
        _Queue.unsent_until_s = time.monotonic() + UNSENT_S
        _log.warning("dispatch.failed", task=task_name, error=str(error))
    except Exception:  # noqa: BLE001 - the rows are stored; a 500 would suggest that they are not
        _log.exception("dispatch.failed", task=task_name)


def _headers() -> dict[str, str]:
    """Return the headers that pass the request id on to the task's log lines (``console.celery``)."""
    request_id = current_request_id()
    return {"request_id": request_id} if request_id else {}


def _why_silent(task_name: str, timeout_s: float) -> str:
    try:
        age_ms = redis_health.heartbeat_age_ms()
    except redis.RedisError:
        age_ms = None
    if age_ms is None or age_ms > WORKER_SILENT_MS:
        return gettext_lazy("No worker responds. Start the Celery worker (it must use the same Redis), then try again.")
    return gettext_lazy(
        "The worker did not finish %(task)s within %(seconds)s seconds. It or a cluster may be overloaded; try again.",
        task=task_name,
        seconds=f"{timeout_s:g}",
    )
