"""Sends Celery tasks by name, and their signed replies. Tasks are not imported: the web process loads neither Spark nor Kafka.

``send`` waits for the commit. The reconciler resends lost tasks. ``send`` therefore never fails or delays a request whose rows
are stored: after a failed message, sending is skipped for ``UNSENT_S``. ``call`` waits for the reply of a task, which the
decorator ``replying`` sends. Secrets are sent encrypted (``console.models.fields.seal``), since the queue is not confidential.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

import redis
import structlog
from django.db import DatabaseError, InterfaceError, transaction
from kombu.exceptions import OperationalError

from console.celery import app
from console.config import signing_keys
from console.config.logging import current_request_id
from console.errors import UnavailableError
from console.http import errors as http_errors
from console.queue import transport
from console.redis import heartbeats as redis_health
from console.redis import redis_client
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
        response = wait_for_reply(reply_to, timeout_s=timeout_s)
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


# --- replies ----------------------------------------------------------------------------------------------------------
#
# The result of a task, or the engine's error, is sent under the name that the waiting caller gave. The signature covers the
# name, so a reply is valid for no other.


_REPLY_EXPIRES_S = 60  # longer than any caller waits
_REPLY_POLL_S = 0.5  # below the socket's timeout
_REPLY_PURPOSE = "reply"


def replying(work: Callable[..., Any]) -> Callable[..., None]:
    """Decorate a task so that it replies with the result of ``work`` (JSON), or with the LinkEngineError it raises.

    Of any other exception the caller gets INTERNAL_ERROR without details.
    """

    @wraps(work)
    def run(*, reply_to: str, **kwargs: Any) -> None:
        redis_health.note_worker()
        send_reply(reply_to, _outcome_of(work, kwargs))

    return run


def _outcome_of(work: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": work(**kwargs)}
    except LinkEngineError as error:
        return {"error": {"code": error.code, "message": error.message}}
    except (DatabaseError, InterfaceError) as error:
        outage = http_errors.outage_of(error)
        if outage is None:
            return _unexpected(work)
        _log.warning("database.unavailable", outage=outage, task=work.__name__)
        return {"unavailable": f"For the worker: {http_errors.sentence(outage)}"}
    except Exception:  # noqa: BLE001 - logged with traceback; the caller gets an error in any case
        return _unexpected(work)


def _unexpected(work: Callable[..., Any]) -> dict[str, Any]:
    _log.exception("task.failed", task=work.__name__)
    message = "The engine failed unexpectedly; the worker's log has the details. Please report it."
    return {"error": {"code": ErrorCode.INTERNAL_ERROR, "message": message}}


def send_reply(reply_to: str, reply: dict[str, Any]) -> None:
    """Send a signed reply to the process that waits for this name.

    The signature covers the name, so it is valid for no other.
    """
    text = json.dumps(reply)
    signature = signing_keys.reply_signer().sign(_REPLY_PURPOSE, reply_to, text)
    pipeline = redis_client().pipeline()
    pipeline.rpush(reply_to, json.dumps({"reply": text, "signature": signature}))
    pipeline.expire(reply_to, _REPLY_EXPIRES_S)
    pipeline.execute()


def wait_for_reply(reply_to: str, *, timeout_s: float) -> dict[str, Any] | None:
    """Return the reply, or None if none arrives in time. Raises redis.RedisError if Redis is not available.

    A reply that was not signed with the credentials key for this name is dropped, and the wait continues.
    """
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        found = cast("tuple[str, str] | None", redis_client().blpop([reply_to], timeout=min(_REPLY_POLL_S, max(0.01, left))))
        if found is not None and (reply := _verified(reply_to, found[1])) is not None:
            return reply
    return None


def _verified(reply_to: str, text: str) -> dict[str, Any] | None:
    try:
        envelope = json.loads(text)
        reply, signature = envelope["reply"], envelope["signature"]
        valid = signing_keys.reply_signer().verifies(signature, _REPLY_PURPOSE, reply_to, reply)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        valid = False
    if not valid:
        _log.error("replies.refused", reply_to=reply_to)
        transport.count_refused("reply")
        return None
    found: dict[str, Any] = json.loads(reply)
    return found
