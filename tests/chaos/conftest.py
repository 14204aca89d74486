"""Separate clusters for the crash tests, which break everything."""

from collections.abc import Iterator

import pytest

from chaos.environment import ChaosEnvironment


@pytest.fixture(scope="module")
def small_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosEnvironment]:
    """Two clusters with a broker each."""
    with ChaosEnvironment(tmp_path_factory.mktemp("chaos"), brokers=1) as environment:
        yield environment


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosEnvironment]:
    """Two clusters with three brokers each."""
    with ChaosEnvironment(tmp_path_factory.mktemp("chaos")) as environment:
        yield environment
