"""Health checks of containers and systemd units: status 0 if healthy, 1 with a reason if not.

``check.py http <url>``, ``check.py tcp <host> <port>``, ``check.py fresh <file> <seconds>`` (modified recently).
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from urllib.request import urlopen

TIMEOUT_S = 5.0


def problem(kind: str, *arguments: str) -> str:
    """Return what is wrong, "" if nothing."""
    try:
        if kind == "http":
            with urlopen(arguments[0], timeout=TIMEOUT_S):  # noqa: S310 - an address of the deployment itself
                return ""
        if kind == "tcp":
            with socket.create_connection((arguments[0], int(arguments[1])), timeout=TIMEOUT_S):
                return ""
        age_s = time.time() - Path(arguments[0]).stat().st_mtime
    except OSError as error:
        return f"{arguments[0]}: {error}"
    return f"{arguments[0]} was modified {age_s:.0f} s ago" if age_s > float(arguments[1]) else ""


if __name__ == "__main__":
    found = problem(*sys.argv[1:])
    sys.stderr.write(f"{found}\n" if found else "")
    sys.exit(1 if found else 0)
