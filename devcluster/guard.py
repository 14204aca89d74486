"""A watching process: when its parent is gone, it kills every session the parent had started.

Run as a script by `processes.py`, once per parent; imports the standard library only so that it starts at once.
Why not PR_SET_PDEATHSIG: the kernel sends that signal when the *thread* that started the child ends, and clusters are
started from short-lived threads. The watcher reads `+<session>` and `-<session>` lines; the end of its input (also
after SIGKILL of the parent) means: kill what is left. A changed parent id means the same, for the case that some other
child of the parent still holds the pipe.
"""

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

POLL_S = 1.0
KILL_TIMEOUT_S = 10.0  # a process in an uninterruptible write ends only after it
KILL_POLL_S = 0.01
SESSION_FIELD = 3  # of /proc/<pid>/stat behind the command name: state, parent, group, session (man proc_pid_stat)


def session_members(session: int) -> list[int]:
    """Return the ids of all living processes of a session; Spark's Python workers leave the group, not the session."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _session_of(path) == session]


def kill_session(session: int) -> None:
    """Kill every process of a session, again until none is left; a busy machine takes a moment to end a killed one."""
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
        return None  # it ended while we looked
    return None if fields[0] in "ZX" else int(fields[SESSION_FIELD])


def watch(*, parent: int) -> None:
    """Follow the lines on standard input until the parent is gone, then kill the sessions still named."""
    sessions: set[int] = set()
    while True:
        readable, _, _ = select.select([0], [], [], POLL_S)
        data = os.read(0, 65536) if readable else b""  # lines are a few bytes: written and read whole
        if readable and not data:
            break
        if not readable and os.getppid() != parent:  # only now: what the parent still wrote has been read
            break
        for line in data.decode().split():
            (sessions.add if line[0] == "+" else sessions.discard)(int(line[1:]))
    for session in sessions:
        kill_session(session)


if __name__ == "__main__":
    watch(parent=int(sys.argv[1]))
