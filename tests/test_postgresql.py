"""The database part of the suite passes on PostgreSQL as it does on SQLite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[1]
PARTS = (("models", "access", "clusters", "links", "verification", "history", "reconciling"), ("mirrors",))
TIMEOUT_S = 900


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("parts", PARTS)
def test_models_actions_and_queries_pass_on_postgresql(parts: tuple[str, ...]) -> None:
    with PostgresServer() as server:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", *(f"tests/console/{part}" for part in parts)],
            cwd=ROOT, env={**os.environ, "CLUSTERLINK_DATABASE_URL": server.url},
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
