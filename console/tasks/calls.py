"""Tasks with a caller that waits: sends their result, or the engine's error, under the name that the caller gave."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError

from console.http import database_outages
from console.redis import heartbeats, replies
from linkengine.domain.errors import ErrorCode, LinkEngineError

_log = structlog.get_logger(__name__)


def replying(work: Callable[..., Any]) -> Callable[..., None]:
    """Decorate a task so that it replies with the result of ``work`` (JSON), or with the LinkEngineError it raises.

    Of any other exception the caller gets INTERNAL_ERROR without details.
    """

    @wraps(work)
    def run(*, reply_to: str, **kwargs: Any) -> None:
        heartbeats.note_worker()
        replies.send_reply(reply_to, _outcome(work, kwargs))

    return run


def _outcome(work: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": work(**kwargs)}
    except LinkEngineError as error:
        return {"error": {"code": error.code, "message": error.message}}
    except (DatabaseError, InterfaceError) as error:
        outage = database_outages.outage_of(error)
        if outage is None:
            return _bug(work)
        _log.warning("database.unavailable", outage=outage, task=work.__name__)
        return {"unavailable": f"For the worker: {database_outages.sentence(outage)}"}
    except Exception:  # noqa: BLE001 - logged with traceback; the caller gets an error in any case
        return _bug(work)


def _bug(work: Callable[..., Any]) -> dict[str, Any]:
    _log.exception("task.failed", task=work.__name__)
    message = "The engine failed unexpectedly; the worker's log has the details. Please report it."
    return {"error": {"code": ErrorCode.INTERNAL_ERROR, "message": message}}
