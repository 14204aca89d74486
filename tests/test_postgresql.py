"""The database part of the suite passes on PostgreSQL as it does on SQLite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("models", "access", "clusters", "links", "verification", "history", "reconciling", "mirrors")
# Its tables are empty and gone after the test: nothing has to survive a crash, be analysed or be compiled for long queries.
SETTINGS = {"synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off", "jit": "off"}
TIMEOUT_S = 900


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_models_actions_and_queries_pass_on_postgresql() -> None:
    """Without the unit tests, which use no database."""
    with PostgresServer(settings=SETTINGS) as server:
        options = ("-q", "-x", "-n", "0", "-m", "not unit")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *(f"tests/console/{part}" for part in PARTS)],
            cwd=ROOT, env={**os.environ, "CLUSTERLINK_DATABASE_URL": server.url},
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
