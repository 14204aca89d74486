"""The unit tests that ``make test-fast`` runs are those that start no program and open no socket, and it enforces that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = "[pytest]\nmarkers =\n    unit\n    network\n    kafka\n    browser\n    spark\n"
# No module of sockets or processes: only the audit hook can find what the tests of the first group do.
IMPORTS = "from threading import Thread\nimport os, pty, pytest\n\n"


def run_lane(folder: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run a test file in the unit lane, in a process of its own."""
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_sample.py").write_text(IMPORTS + test)
    plugins = [f"-p{name}" for name in ("tests.unit_lane", "no:django", "no:cacheprovider", "no:randomly", "no:schemathesis")]
    command = [sys.executable, "-m", "pytest", *plugins, "-m", "unit", "-c", str(folder / "pytest.ini"), str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


OPENS = "__import__('socket').socket()"
IN_FIXTURE = f"@pytest.fixture\ndef opened():\n    return {OPENS}\n\ndef test_it(opened): ...\n"
IN_THREAD = f"""
def handle():
    try:
        {OPENS}
    except RuntimeError:
        pass

def test_it():
    thread = Thread(target=handle)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize(
    ("test", "attempt"),
    [
        ("def test_it():\n    __import__('socket').getaddrinfo('127.0.0.1', 1)\n", "resolved a name ('127.0.0.1')"),
        (f"def test_it():\n    {OPENS}\n", "opened a socket"),
        (f"def test_it():\n    with pytest.raises(RuntimeError):\n        {OPENS}\n", "opened a socket"),
        (IN_FIXTURE, "opened a socket"),
        (IN_THREAD, "opened a socket"),
        ("def test_it():\n    os.system('true')\n", "started a process (os.system)"),
        ("def test_it():\n    pty.fork()\n", "started a process (os.forkpty)"),
    ],
    ids=["name", "socket", "handled", "fixture", "thread", "shell", "fork"],
)
def test_unit_test_that_uses_the_network_or_a_process_fails(tmp_path: Path, test: str, attempt: str) -> None:
    done = run_lane(tmp_path, test)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"A unit test {attempt}" in done.stdout


@pytest.mark.parametrize(
    "test",
    [
        "import socket\n\ndef test_it():\n    socket.socket()\n",
        "import subprocess\n\n@pytest.fixture\ndef ended():\n    return subprocess.run(['true'])\n\ndef test_it(ended): ...\n",
        "from devcluster.kafka import KafkaCluster\n\nasync def helper(): ...\n\ndef test_it():\n    assert KafkaCluster\n",
        "@pytest.mark.network\ndef test_it(): ...\n",
        "pytestmark = pytest.mark.kafka\n\ndef test_it(): ...\n",
        "import socket\n\ndef test_it():\n    def inner():\n        return socket.socket()\n    assert inner\n",
        "@pytest.fixture\ndef db(): ...\n\n@pytest.fixture\ndef row(db): ...\n\ndef test_it(row): ...\n",
    ],
    ids=["socket", "fixture", "cluster", "network", "kafka", "inner", "database"],
)
def test_test_that_needs_a_program_is_no_unit_test(tmp_path: Path, test: str) -> None:
    done = run_lane(tmp_path, test)

    assert done.returncode == 5, done.stdout + done.stderr  # pytest's exit status if all tests are deselected
    assert "1 deselected" in done.stdout


def test_unit_test_finds_no_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERLINK_REDIS_URL", "redis://:secret@127.0.0.1:1/0")
    address = "('127.0.0.1', 1)"
    test = f"with pytest.raises(ConnectionRefusedError):\n        __import__('socket').create_connection({address})\n"

    done = run_lane(tmp_path, f"def test_it():\n    {test}")

    assert done.returncode == 0, done.stdout + done.stderr


def test_unit_test_runs(tmp_path: Path) -> None:
    done = run_lane(tmp_path, "import asyncio\n\ndef test_it():\n    asyncio.run(asyncio.sleep(0))\n")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
