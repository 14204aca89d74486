"""A worker that dies once, at a place that is named; the next one that comes there goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError


def gone() -> LinkEngineError:
    """Answer the end of a worker as its task tells it, so that the mirror waits for another one."""
    return LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The worker is gone.")


def die_once(
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[Any, str],
    *,
    error: Callable[[], BaseException] = gone,
    doing: Callable[[dict[str, Any]], object] = lambda _options: None,
) -> None:
    """Let the first call of ``place`` die in its stead, ``doing`` something before, given what the call was given by name."""
    real, left = getattr(*place), [True]

    def die_first(*arguments: Any, **options: Any) -> Any:
        if not left:
            return real(*arguments, **options)
        left.pop()
        doing(options)
        raise error()

    monkeypatch.setattr(*place, die_first)


BEFORE_DELETION = (jobs, "delete_diverged")
