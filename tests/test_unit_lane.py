"""The unit tests that ``make test-fast`` runs are those that start no program and open no socket, and it enforces that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = "[pytest]\nmarkers =\n    unit\n    network\n    kafka\n    browser\n    spark\n"
REPORT = "report.xml"
# No module of sockets or processes: only the audit hook can find what the tests of the first group do.
IMPORTS = "from threading import Thread\nimport os, pty, pytest\n\n"


def run_lane(folder: Path, **tests: str) -> subprocess.CompletedProcess[str]:
    """Run test files in the unit lane, in a process of their own, which takes longer to start than to run all of them."""
    (folder / "pytest.ini").write_text(SETTINGS)
    for name, test in tests.items():
        (folder / f"test_{name}.py").write_text(IMPORTS + test)
    plugins = [f"-p{name}" for name in ("tests.unit_lane", "no:django", "no:cacheprovider", "no:randomly", "no:schemathesis")]
    command = [sys.executable, "-m", "pytest", *plugins, "-m", "unit", "-c", str(folder / "pytest.ini"), str(folder)]
    command += [f"--junit-xml={folder / REPORT}"]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those are for the tests of this run
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=120, check=False)


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


ATTEMPTS = {
    "name": ("def test_it():\n    __import__('socket').getaddrinfo('127.0.0.1', 1)\n", "resolved a name ('127.0.0.1')"),
    "socket": (f"def test_it():\n    {OPENS}\n", "opened a socket"),
    "handled": (f"def test_it():\n    with pytest.raises(RuntimeError):\n        {OPENS}\n", "opened a socket"),
    "fixture": (IN_FIXTURE, "opened a socket"),
    "thread": (IN_THREAD, "opened a socket"),
    "shell": ("def test_it():\n    os.system('true')\n", "started a process (os.system)"),
    "fork": ("def test_it():\n    pty.fork()\n", "started a process (os.forkpty)"),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run all ATTEMPTS; return what is reported of each."""
    folder = tmp_path_factory.mktemp("attempts")
    done = run_lane(folder, **{name: test for name, (test, _) in ATTEMPTS.items()})
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ElementTree.parse(folder / REPORT).iter("testcase")
    return {case.attrib["classname"].removeprefix("test_"): "".join(case.itertext()) for case in cases if len(case)}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_unit_test_that_uses_the_network_or_a_process_fails(failures: dict[str, str], name: str) -> None:
    assert f"A unit test {ATTEMPTS[name][1]}" in failures[name]


def test_tests_that_need_a_program_are_no_unit_tests(tmp_path: Path) -> None:
    done = run_lane(
        tmp_path,
        socket="import socket\n\ndef test_it():\n    socket.socket()\n",
        fixture="import subprocess\n\n@pytest.fixture\ndef ended():\n    return subprocess.run(['true'])\n\n"
        "def test_it(ended): ...\n",
        cluster="from devcluster.kafka import KafkaCluster\n\nasync def helper(): ...\n\n"
        "def test_it():\n    assert KafkaCluster\n",
        network="@pytest.mark.network\ndef test_it(): ...\n",
        kafka="pytestmark = pytest.mark.kafka\n\ndef test_it(): ...\n",
        inner="import socket\n\ndef test_it():\n    def inner():\n        return socket.socket()\n    assert inner\n",
        database="@pytest.fixture\ndef db(): ...\n\n@pytest.fixture\ndef row(db): ...\n\ndef test_it(row): ...\n",
    )

    assert done.returncode == 5, done.stdout + done.stderr  # pytest's exit status if all tests are deselected
    assert "7 deselected" in done.stdout


def test_unit_test_finds_no_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERLINK_REDIS_URL", "redis://:secret@127.0.0.1:1/0")
    address = "('127.0.0.1', 1)"
    test = f"with pytest.raises(ConnectionRefusedError):\n        __import__('socket').create_connection({address})\n"

    done = run_lane(tmp_path, redis=f"def test_it():\n    {test}")

    assert done.returncode == 0, done.stdout + done.stderr


def test_unit_test_runs(tmp_path: Path) -> None:
    done = run_lane(tmp_path, asyncio="import asyncio\n\ndef test_it():\n    asyncio.run(asyncio.sleep(0))\n")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
