"""A separate Redis for tests that flush, stop or freeze it, and a unique key."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.redis import RedisServer


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(directory=tmp_path / "redis") as server:
        yield server


@pytest.fixture
def key() -> str:
    return f"{secrets.token_hex(8)}/0"
