"""``executor_logs.py <work dir>``: copy what Spark's executors write to their log files to standard error, line by line.

A standalone worker redirects the output of executors, Python workers included, to ``<work dir>/<app>/<executor>/stderr`` and
``stdout``, where no log collector of a container or of systemd finds it. Ends when its parent, the worker, has ended.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import BinaryIO

POLL_S = 0.5
MOST = 1 << 20  # bytes of one file per round


class LogFile:
    """One log file; Spark replaces it by an empty one when it has become large."""

    def __init__(self, path: Path, *, from_end: bool) -> None:
        """Open the file."""
        self.path = path
        self._file: BinaryIO = path.open("rb")
        self._partial = b""
        if from_end:
            self._file.seek(0, os.SEEK_END)

    def lines(self) -> list[bytes]:
        """Return the complete lines that are new."""
        text = self._partial + self._file.read(MOST)
        complete, newline, self._partial = text.rpartition(b"\n")
        return complete.split(b"\n") if newline else []

    def follow_rotation(self) -> None:
        """Open the new file if there is one; call it when the old one has been read to its end."""
        try:
            if os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                return
        except FileNotFoundError:
            return
        self._file.close()
        self._file, self._partial = self.path.open("rb"), b""

    def is_gone(self) -> bool:
        """Return True if the directory of the executor was removed."""
        return not self.path.parent.exists()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def copy_once(directory: Path, known: dict[Path, LogFile], *, from_end: bool = False) -> None:
    """Copy what is new in all files."""
    for path in sorted(directory.glob("app-*/*/std[eo][ru][rt]")):
        if path not in known:
            known[path] = LogFile(path, from_end=from_end)
    for path, log in list(known.items()):
        lines = log.lines()
        prefix = "/".join(path.parts[-3:]).encode()
        sys.stderr.buffer.write(b"".join(b"%s: %s\n" % (prefix, line) for line in lines))
        if not lines:
            log.follow_rotation()
        if log.is_gone():
            known.pop(path).close()
    sys.stderr.flush()


def main(directory: Path) -> int:
    """Copy until the parent ends."""
    parent, known = os.getppid(), dict[Path, LogFile]()
    copy_once(directory, known, from_end=True)  # of earlier runs
    while os.getppid() == parent:
        time.sleep(POLL_S)
        copy_once(directory, known)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
