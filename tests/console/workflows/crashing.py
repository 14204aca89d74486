"""A worker that crashes once at a given call; the next worker that gets there continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError


def crashed_worker() -> LinkEngineError:
    """Return the error that stands for a crashed worker, after which the mirror waits for another worker."""
    return LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The worker is gone.")


def crash_once(
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[Any, str],
    *,
    error: Callable[[], BaseException] = crashed_worker,
    doing: Callable[[dict[str, Any]], object] = lambda _options: None,
) -> None:
    """Raise ``error`` in place of the first call of ``place``, after calling ``doing`` with the call's keywords."""
    real, left = getattr(*place), [True]

    def die_first(*arguments: Any, **options: Any) -> Any:
        if not left:
            return real(*arguments, **options)
        left.pop()
        doing(options)
        raise error()

    monkeypatch.setattr(*place, die_first)


BEFORE_DELETION = (jobs, "delete_diverged")
