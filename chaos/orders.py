"""What the harness and its copier processes tell each other: values in files, names of files through a FIFO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linkengine.domain.mirrorjobs import MirrorStop
from linkengine.domain.workers import WorkerSetup

FIFO = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """One copy worker; what it copies is told through Redis."""

    setup: WorkerSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrder:
    """One stop of a mirror; where it ended is written to ``<name>.ends``."""

    stop: MirrorStop


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that nobody ever sees half written."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)
