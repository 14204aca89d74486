"""``linkctl link drill``: start, wait, list, describe, cancel."""

from typing import Any

import pytest

from console.models import Drill
from tests.console.api.actors import Boundary
from tests.linkctl.conftest import Run, read_json, replace_sleep

ROW = {"mirror_topic_name": "orders", "scratch_topic_name": "x", "rto_ms": 900, "rpo_ms": None, "records_not_copied": 0}
REST = {"records_compared": 12, "differences": 0, "writable": True, "problem": "", "note": ""}

GROUP = {
    "group": "app",
    "mirror_topic_name": "orders",
    "partitions": 3,
    "clamped": 1,
    "offsets_set_back": 30,
    "unknown": 0,
    "clamped_offsets": [{"partition": 1, "source_offset": 130, "offset_after": 100}],
}


@pytest.mark.parametrize(("status", "code"), [("PASSED", 0), ("FAILED", 1)])
def test_the_result_of_a_drill_is_the_exit_code(
    run: Run, make_mirror: Any, boundary: Boundary, monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    make_mirror("orders")
    ended = {"status": status, "rto_ms": 900, "report": [{**ROW, **REST}], "groups": [GROUP]}
    replace_sleep(monkeypatch, lambda _seconds: Drill.objects.update(**ended))

    result = run("link", "drill", "start", "from-source", "--topic", "orders", "--from", "earliest", "--wait")

    assert result.exit_code == code
    assert "orders        0.900 s  unknown  0           12        0          yes       -" in result.stdout
    assert "app    orders        3           1        30          0" in result.stdout


def test_drills_are_listed_and_described(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")
    drill = read_json(run("link", "drill", "start", "from-source", "--json"))

    assert run("link", "drill", "list", "from-source").stdout.splitlines()[1].split()[1] == "PREPARING"
    assert read_json(run("link", "drill", "describe", "from-source", str(drill["id"]), "--json")) == drill
    assert run("link", "drill", "describe", "from-source", "999").exit_code == 3


def test_a_drill_is_canceled(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")
    drill = read_json(run("link", "drill", "start", "from-source", "--json"))

    canceled = read_json(run("link", "drill", "cancel", "from-source", str(drill["id"]), "--json"))

    assert (canceled["status"], canceled["problem"][:12]) == ("CLEANING", "Canceled by ")
    assert run("link", "drill", "cancel", "from-source", "999").exit_code == 3
