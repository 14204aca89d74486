"""A watcher process: when its parent is gone, it kills every session that the parent had started.

Run as a script by `processes.py`, once per parent; imports only the standard library, to start fast.
PR_SET_PDEATHSIG is not used: the kernel sends that signal when the *thread* that started the child ends, and clusters are
started from short-lived threads. The watcher reads `+<session>` and `-<session>` lines; at the end of its input (also after
SIGKILL of the parent) it kills the remaining sessions. A changed parent id has the same effect, in case another child of the
parent still holds the pipe.
"""

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

POLL_S = 1.0
KILL_TIMEOUT_S = 10.0  # a process in an uninterruptible write ends only after that write
KILL_POLL_S = 0.01
SESSION_FIELD = 3  # of /proc/<pid>/stat behind the command name: state, parent, group, session (man proc_pid_stat)


def session_members(session: int) -> list[int]:
    """Return the ids of all live processes of a session; Spark's Python workers leave the group, but not the session."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _session_of(path) == session]


def kill_session(session: int) -> None:
    """Kill every process of a session, repeatedly until none is left, since a busy machine ends them with a delay."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while (members := session_members(session)) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_POLL_S)


def _session_of(path: Path) -> int | None:
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None  # ended in the meantime
    return None if fields[0] in "ZX" else int(fields[SESSION_FIELD])


def watch(*, parent: int) -> None:
    """Process the lines on standard input until the parent is gone, then kill the remaining sessions."""
    sessions: set[int] = set()
    while True:
        readable, _, _ = select.select([0], [], [], POLL_S)
        data = os.read(0, 65536) if readable else b""  # lines have a few bytes: written and read whole
        if readable and not data:
            break
        if not readable and os.getppid() != parent:  # checked only when all lines of the parent have been read
            break
        for line in data.decode().split():
            (sessions.add if line[0] == "+" else sessions.discard)(int(line[1:]))
    for session in sessions:
        kill_session(session)


if __name__ == "__main__":
    watch(parent=int(sys.argv[1]))
