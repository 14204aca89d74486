"""A program that is told to end (SIGTERM) or interrupted (SIGINT) puts away what it began, as after Ctrl-C.

A shell without job control starts what runs in the background with SIGINT ignored, and Python leaves it so.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT  # the exit status that shells expect of a program that was
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread, which this has to be called from, for either signal."""
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
