"""Separate clusters for the crash tests, which break everything."""

from collections.abc import Iterator

import pytest

from chaos.ground import Ground


@pytest.fixture(scope="module")
def small_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two clusters with a broker each."""
    with Ground(tmp_path_factory.mktemp("ground"), brokers=1) as ground:
        yield ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two clusters with three brokers each."""
    with Ground(tmp_path_factory.mktemp("ground")) as ground:
        yield ground
