"""The demo's progress output: a line per step with the time since the start, and a counter that is updated in place.

On a terminal a counter rewrites its line; elsewhere it is printed every few seconds.
"""

import sys
import threading
import time

TICK_S = 5.0  # between two counter lines if the output is not a terminal


class Progress:
    """A thread-safe printer."""

    def __init__(self) -> None:
        """Start the clock."""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._ticked = 0.0
        self._open_line = False
        self._terminal = sys.stdout.isatty()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        """Print a step that is done or begins."""
        with self._lock:
            self._write(f"{self._stamp()} {text}", end="\n")

    def tick(self, text: str) -> None:
        """Show the progress of a long step."""
        with self._lock:
            if self._terminal:
                self._write(f"{self._stamp()} {text}", end="")
            elif time.monotonic() - self._ticked >= TICK_S:
                self._ticked = time.monotonic()
                self._write(f"{self._stamp()} {text}", end="\n")

    def text(self, text: str) -> None:
        """Print text without a time."""
        with self._lock:
            self._write(text, end="\n")

    def _stamp(self) -> str:
        return f"[{self.elapsed_s:5.1f} s]"

    def _write(self, text: str, *, end: str) -> None:
        start = "\r\x1b[K" if self._terminal and self._open_line else ""
        sys.stdout.write(f"{start}{text}{end}")
        sys.stdout.flush()
        self._open_line = not end
