"""Messages between the harness and its copy worker processes: values in files, file names through a FIFO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linkengine.domain.mirrorjobs import MirrorStop
from linkengine.domain.workers import WorkerSetup

FIFO = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """Start a copy worker; it gets its assignments through Redis."""

    setup: WorkerSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrder:
    """Stop a mirror; its ends are written to ``<name>.ends``."""

    stop: MirrorStop


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, so that no reader finds it half written."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)
