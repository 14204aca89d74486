"""``linkctl mirror record``: the record at one offset on both sides."""

from __future__ import annotations

from typing import Any

import pytest

from linkengine.domain.record_views import Presence
from tests.console.api.actors import Rest
from tests.console.api.brokers import SmallCluster, side
from tests.linkctl.conftest import Run, read_json

COMMAND = ("mirror", "record", "orders", "--link", "from-source")


@pytest.fixture(autouse=True)
def orders(make_mirror: Any) -> None:
    make_mirror("orders")


def test_equal_records_are_shown_without_contents(run: Run, cluster: SmallCluster) -> None:
    result = run(*COMMAND, "--offset", "7")

    assert result.exit_code == 0
    assert "EQUAL" in result.stdout
    assert "4 bytes" in result.stdout
    assert "same" not in result.stdout


def test_records_that_differ_have_exit_code_1(run: Run, cluster: SmallCluster) -> None:
    cluster.sides, cluster.differing = (side(b"one"), side(None, Presence.TRANSACTION_MARKER, marker="COMMIT")), ()

    result = run(*COMMAND, "--offset", "7")

    assert result.exit_code == 1
    assert "TRANSACTION_MARKER COMMIT" in result.stdout


def test_json_has_the_contents(run: Run, cluster: SmallCluster) -> None:
    found = read_json(run(*COMMAND, "--timestamp-ms", "1700000000000", "--json"))

    assert found["mirror"]["record"]["value"]["base64"] == "c2FtZQ=="
    assert cluster.queries[0][1]["timestamp_ms"] == 1_700_000_000_000


@pytest.mark.parametrize("arguments", [(), ("--offset", "1", "--timestamp-ms", "1"), ("--offset", "-1")])
def test_wrong_options_are_usage_errors(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*COMMAND, *arguments).exit_code == 2


def test_reader_is_refused(run: Run, reader: Rest, cluster: SmallCluster) -> None:
    assert run(*COMMAND, "--offset", "7", as_=reader).exit_code == 4
    assert cluster.queries == []
