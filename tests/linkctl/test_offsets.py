"""``linkctl offsets-for-time``: repeats the lookup until it is complete, and resets a group only with --execute."""

from typing import Any

import pytest

from tests.console.api.brokers import TIMED, SmallCluster
from tests.linkctl.conftest import Run, read_json

COMMAND = ("offsets-for-time", "orders", "--link", "from-source")


@pytest.fixture(autouse=True)
def orders(make_mirror: Any) -> None:
    make_mirror("orders")


@pytest.mark.parametrize(
    "text", ["2023-11-14T22:13:20", "2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00", "2023-11-14T22:13:20.000"]
)
def test_a_time_without_an_offset_is_utc(run: Run, cluster: SmallCluster, text: str) -> None:
    lines = run(*COMMAND, "--to-datetime", text).stdout.splitlines()

    assert lines[1].split() == ["0", "7", "1700000000500", "10"]
    assert cluster.queries[0][1]["timestamp_ms"] == 1_700_000_000_000


def test_the_lookup_is_repeated_until_it_is_complete(run: Run, cluster: SmallCluster) -> None:
    unfinished = {**TIMED, "offset": None, "record_timestamp_ms": None, "searched_to": 5, "is_complete": False}
    found = {**TIMED, "partition": 1, "offset": 2, "searched_to": 1}
    cluster.timed = [[unfinished, found], [TIMED, found]]

    result = run(*COMMAND, "--timestamp-ms", "1700000000000", "--json")

    assert read_json(result)["data"] == [TIMED, found]
    assert [requested["positions"] for _, requested in cluster.queries] == [[], [[0, 5], [1, 2]]]


def test_a_group_is_reset_only_with_execute(run: Run, cluster: SmallCluster) -> None:
    shown = run(*COMMAND, "--timestamp-ms", "0", "--reset-group", "data/x")
    done = run(*COMMAND, "--timestamp-ms", "0", "--reset-group", "data/x", "--execute")

    assert "would be written (add --execute)" in shown.stdout
    assert done.stdout.splitlines()[1].split() == ["0", "9", "7", "written"]
    resets = [requested for question, requested in cluster.queries if question == "reset_group"]
    assert [(requested["group_id"], requested["offsets"], requested["execute"]) for requested in resets] == [
        ("data/x", [[0, 7]], False),
        ("data/x", [[0, 7]], True),
    ]


def test_without_a_record_that_late_a_group_is_reset_to_the_log_end(run: Run, cluster: SmallCluster) -> None:
    cluster.timed = [[{**TIMED, "offset": None, "record_timestamp_ms": None, "searched_to": 10}]]

    run(*COMMAND, "--timestamp-ms", "1", "--reset-group", "readers")

    assert cluster.queries[-1][1]["offsets"] == [[0, 10]]


def test_a_refused_offset_is_shown_and_the_exit_code_is_1(run: Run, cluster: SmallCluster) -> None:
    cluster.refusal = {"is_written": False, "message": "Not authorized."}

    result = run(*COMMAND, "--timestamp-ms", "1", "--reset-group", "readers", "--execute")

    assert result.exit_code == 1
    assert "Not authorized." in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--timestamp-ms", "1", "--to-datetime", "2023-01-01"),
        ("--to-datetime", "soon"),
        ("--timestamp-ms", "1", "--execute"),
    ],
)
def test_invalid_combinations_of_options_are_usage_errors(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*COMMAND, *arguments).exit_code == 2
