"""View models of drills: problems first, a limited number of rows, and the number of omitted rows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from console.models import Drill
from console.verification.failover_presenters import LISTED, drill_row
from console.web import numbers
from linkengine.domain.failover import DrillRow, GroupRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD: dict[str, Any] = {"records_compared": 9, "differences": 0, "writable": True, "rto_ms": 5}


def make_drill(**values: object) -> Drill:
    return Drill(pk=1, start_spec="latest", requested_by="amelia", requested_at=NOW, **({"status": "FAILED"} | values))


def test_drill_lists_topics_with_problems_first_and_counts_the_rest() -> None:
    rows = [DrillRow(mirror_topic_name=f"topic-{n}", scratch_topic_name="x", **GOOD) for n in range(LISTED + 9)]
    bad = DrillRow(mirror_topic_name="the-bad-one", scratch_topic_name="x", problem="It failed.")

    shown = drill_row(make_drill(report=[asdict(row) for row in (*rows, bad)]), now=NOW)

    assert (shown.lines[0].name, shown.lines[0].problem, shown.lines[0].rto) == (
        "the-bad-one",
        "It failed.",
        numbers.duration(None),
    )
    assert (len(shown.lines), shown.more_lines, shown.topics, shown.of_batches) == (LISTED, 10, LISTED + 10, True)


def test_drill_groups_show_clamped_and_unknown_offsets() -> None:
    offsets = [{"partition": n, "source_offset": 1_300, "offset_after": 1_000} for n in range(5)]
    common: dict[str, Any] = {"mirror_topic_name": "orders", "partitions": 6}
    back = GroupRow(group="b", clamped=5, offsets_set_back=1_500, unknown=1, clamped_offsets=offsets, **common)
    kept = GroupRow(group="a", clamped=0, offsets_set_back=0, unknown=0, clamped_offsets=[], **common)

    shown = drill_row(make_drill(groups=[asdict(kept), asdict(back)]), now=NOW)

    assert [line.group for line in shown.groups] == ["b", "a"]
    assert shown.clamped_groups == 1
    assert shown.groups[0].offsets == "0: 1,300 → 1,000, 1: 1,300 → 1,000, 2: 1,300 → 1,000, 2 more, 1 partition unknown"
    assert shown.groups[1].offsets == "same as source"


@pytest.mark.parametrize(
    ("rto_ms", "unknown", "unsure"), [(5, 0, False), (5, 1, True), (None, 0, True)], ids=["all", "no-end", "no-failover"]
)
def test_drill_is_unsure_if_groups_could_not_be_checked(rto_ms: int | None, unknown: int, *, unsure: bool) -> None:
    row = DrillRow(mirror_topic_name="orders", scratch_topic_name="x", **(GOOD | {"rto_ms": rto_ms}))
    seen: dict[str, Any] = {
        "mirror_topic_name": "bills",
        "partitions": 6,
        "clamped": 0,
        "offsets_set_back": 0,
        "clamped_offsets": [],
    }
    group = GroupRow(group="a", unknown=unknown, **seen)

    assert drill_row(make_drill(report=[asdict(row)], groups=[asdict(group)]), now=NOW).unsure is unsure


def test_running_drill_shows_its_progress() -> None:
    row = asdict(DrillRow(mirror_topic_name="orders", scratch_topic_name="x", **GOOD))
    drill = make_drill(status="PREPARING", topics=["orders", "bills", "carts"], report=[row])

    assert drill_row(drill, now=NOW).progress == "1 of 3 topics done"
    assert drill_row(make_drill(topics=["orders"], report=[row]), now=NOW).progress == ""
