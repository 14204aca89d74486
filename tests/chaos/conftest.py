"""Grounds of their own for the crash tests, since they break everything."""

from collections.abc import Iterator

import pytest

from chaos.ground import Ground


@pytest.fixture(scope="module")
def small_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two clusters of one broker each."""
    with Ground(tmp_path_factory.mktemp("ground"), brokers=1) as ground:
        yield ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two clusters of three brokers each."""
    with Ground(tmp_path_factory.mktemp("ground")) as ground:
        yield ground
