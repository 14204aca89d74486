"""What the demo prints while it works: one line per step with the time since the start, and a counter that moves.

Knows nothing of what is being done. On a terminal a counter rewrites its line; elsewhere it appears every few seconds.
"""

import sys
import threading
import time

TICK_S = 5.0  # between two counter lines where output is not a terminal


class Progress:
    """A printer that several threads may use."""

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
        """Show how far a long step is."""
        with self._lock:
            if self._terminal:
                self._write(f"{self._stamp()} {text}", end="")
            elif time.monotonic() - self._ticked >= TICK_S:
                self._ticked = time.monotonic()
                self._write(f"{self._stamp()} {text}", end="\n")

    def text(self, text: str) -> None:
        """Print text as it is."""
        with self._lock:
            self._write(text, end="\n")

    def _stamp(self) -> str:
        return f"[{self.elapsed_s:5.1f} s]"

    def _write(self, text: str, *, end: str) -> None:
        start = "\r\x1b[K" if self._terminal and self._open_line else ""
        sys.stdout.write(f"{start}{text}{end}")
        sys.stdout.flush()
        self._open_line = not end
