"""Unexpected exceptions in logs, which no fault of a storm explains. Pure except for reading the log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from chaos.judge import Finding

BEGINS = "Traceback (most recent call last):"
LINES_SHOWN = 6
_CONTINUES = ("During handling of the above exception", "The above exception was the direct cause")
# exceptions of programs while Redis, the queue in it, or Spark is down; each of them is killed and frozen on purpose
_EXPLAINED = (
    "redis.exceptions.", "kombu.exceptions.OperationalError", "celery.beat.SchedulingError", "amqp.exceptions.",
    "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError",
    "linkengine.domain.workers.CoordinationUnavailableError", "linkengine.sparkclient.SparkUnavailableError",
    "grpc._channel.",
)  # fmt: skip
_FRAME = re.compile(r"^(\s|$)")


def crashes(log: Path) -> Iterator[Finding]:
    """Yield the unexpected exceptions in a program's log."""
    for text in unexplained(log.read_text(errors="replace")):
        yield Finding(kind="crash", detail=f"{log.name}: {text}")


def unexplained(text: str) -> Iterator[str]:
    """Yield the end of every traceback that is not about a part which a storm breaks."""
    lines = text.splitlines()
    begins = [at for at, line in enumerate(lines) if BEGINS in line]
    for begin in begins:
        end = next((at for at in range(begin + 1, len(lines)) if not _FRAME.match(lines[at])), len(lines) - 1)
        follows = next((line for line in lines[end + 1 :] if line.strip()), "")
        if not follows.startswith(_CONTINUES) and not lines[end].startswith(_EXPLAINED):
            yield "\n".join(lines[max(begin, end - LINES_SHOWN) : end + 1])
