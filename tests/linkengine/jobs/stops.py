"""Stops of a single mirror, whose error is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped


def stop_mirror(
    stop: MirrorStop, *, on_fenced: Callable[[MirrorStopped], Any] = lambda _: None, on_open: Callable[[], Any] = lambda: None
) -> MirrorStopped:
    """Stop a mirror in a list of its own; return the result or raise the error."""

    def record(found: Any) -> None:
        for stopped in found.values():
            on_fenced(stopped)

    (result,) = jobs.stop_mirrors([stop], on_fenced=record, on_open=lambda _: on_open()).values()
    if isinstance(result, LinkEngineError):
        raise result
    return result
