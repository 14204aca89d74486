"""Logging: each line is an event with named values, the request id and the task id. Never a secret.

Values whose name suggests a secret are masked.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import Processor

_SECRET_WORDS = ("password", "secret", "jaas", "token", "credential", "private")
_MASK = "[hidden]"
_UVICORN = ("uvicorn", "uvicorn.error", "uvicorn.access")  # uvicorn gives these handlers before it loads the project
_QUIET = ("kafka", "py4j", "pyspark", "asyncio", "httpx", "django.request", "celery.app.trace", "celery.worker.strategy")


def configure_logging(*, level: str, as_json: bool) -> None:
    """Send structlog's events and the standard library's records through the same chain to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        mask_secrets,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    for previous in [known for known in root.handlers if getattr(known, "is_ours", False)]:
        root.removeHandler(previous)
    handler.is_ours = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(level)
    for name in _UVICORN:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def current_request_id() -> str:
    """Return the id of the request or of the reconcile pass that this thread or coroutine works for, or ""."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def mask_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask values whose name suggests a secret. A safety net: secrets must not be logged in the first place."""
    for name in event:
        if any(word in name.lower() for word in _SECRET_WORDS):
            event[name] = _MASK
    return event
