"""No process is left after stop, kill, or the parent's sudden death; and errors have the tail of the log."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from devcluster.processes import Process, ProcessFailedError, run
from devcluster.reaper import session_members

TIMEOUT_S = 60
# A program with a child that leaves the process group, as Spark's Python workers do.
FAMILY = "import os, time; os.fork() or os.setpgid(0, 0); print('up', flush=True); time.sleep(600)"
PARENT = """
import sys, time
from pathlib import Path
from devcluster.processes import Process
child = Process([sys.executable, "-c", sys.argv[1]], name="family", log=Path(sys.argv[2]))
print(child.pid, flush=True)
time.sleep(600)
"""


def eventually(condition: Callable[[], object], *, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def start_family(log: Path) -> Process:
    process = Process([sys.executable, "-c", FAMILY], name="family", log=log)
    process.wait_until(lambda: log.read_text().count("up") == 2, timeout_s=TIMEOUT_S)
    return process


def test_stop_ends_the_whole_session(tmp_path: Path) -> None:
    process = start_family(tmp_path / "log")
    assert len(session_members(process.pid)) == 2

    process.stop()

    assert session_members(process.pid) == []


def test_stop_ends_a_frozen_program(tmp_path: Path) -> None:
    process = start_family(tmp_path / "log")
    process.pause()

    process.stop()

    assert session_members(process.pid) == []


def test_stop_may_be_repeated(tmp_path: Path) -> None:
    process = start_family(tmp_path / "log")

    process.stop()
    process.stop()

    assert not process.running()


def test_a_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(start_family(tmp_path / "log")))
    thread.start()
    thread.join(TIMEOUT_S)

    assert started[0].running()
    started[0].stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_are_killed_when_the_parent_dies(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", PARENT, FAMILY, str(log)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    assert parent.stdout is not None
    session = int(parent.stdout.readline())
    eventually(lambda: log.read_text().count("up") == 2, what="the family did not start")
    watchers = psutil.Process(parent.pid).children()

    parent.send_signal(number)
    parent.wait(TIMEOUT_S)
    parent.stdout.close()

    eventually(lambda: session_members(session) == [], what="children live on")
    assert psutil.wait_procs(watchers, timeout=TIMEOUT_S)[1] == []


def test_a_program_that_ends_early_raises_with_its_log(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", "print('no room'); exit(3)"], name="broken", log=tmp_path / "log")

    with pytest.raises(ProcessFailedError, match=r"(?s)broken ended with code 3.*no room"):
        process.wait_until(lambda: False, timeout_s=TIMEOUT_S)

    process.stop()


def test_a_program_that_is_not_ready_in_time_raises_with_its_log(tmp_path: Path) -> None:
    process = start_family(tmp_path / "log")

    with pytest.raises(ProcessFailedError, match=r"(?s)family was not ready.*up"):
        process.wait_until(lambda: False, timeout_s=0.1)

    process.stop()


def test_a_short_program_gets_its_input_and_returns_its_output(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", "print(input().upper())"], text="hello", env={}, cwd=tmp_path, timeout_s=TIMEOUT_S)

    assert (done.returncode, done.stdout) == (0, "HELLO\n")


def test_a_short_program_is_killed_after_its_timeout(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", "echo $$ > pid; exec sleep 600"], env={}, cwd=tmp_path, timeout_s=3)

    assert session_members(int((tmp_path / "pid").read_text())) == []
