"""Which mirrors are a prefix of another copy of their source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.mirrorjobs import obstacles, reparent_points
from linkengine.domain.plans import LogRange

Log = list[str]


def held(end: int, *, start: int = 0, partition: int = 0) -> LogRange:
    return LogRange(partition=partition, start=start, end=end, stable_end=end)


@pytest.mark.parametrize(
    ("end", "parent", "fence", "words"),
    [
        (100, held(101), 100, ""),
        (90, held(150), 100, ""),
        (0, held(5), 0, ""),  # the parent created this partition itself; the mirror does not have it
        (101, held(150), 100, "1 beyond offset 100"),
        (1, held(150), 0, "1 beyond offset 0"),
        (90, held(99), 100, "before its own fence"),
        (90, held(150, start=91), 100, "begins at offset 91 there, beyond this mirror's end 90"),
        (90, held(150, start=90), 100, ""),
        (0, None, 0, "does not exist there"),
    ],
)
def test_a_mirror_can_be_reparented_to_a_copy_that_holds_all_its_records(
    end: int, parent: LogRange | None, fence: int, words: str
) -> None:
    found = obstacles(reparent_points([held(end)], parent=[parent] if parent else [], fences={0: fence}))

    assert len(found) == bool(words)
    assert words in "".join(found)


def test_obstacles_name_every_partition_that_has_one() -> None:
    points = reparent_points(
        [held(10), held(11, partition=1), held(12, partition=2)],
        parent=[held(20), held(20, partition=1), held(20, partition=2)],
        fences={0: 10, 1: 10},
    )

    assert [point.ahead for point in points] == [0, 1, 12]
    assert [obstacle.split(" ends")[0] for obstacle in obstacles(points)] == ["partition 1", "partition 2"]


def test_a_mirror_cannot_be_reparented_to_a_copy_that_never_had_its_older_records() -> None:
    [point] = reparent_points([held(10, start=2)], parent=[held(20, start=5)], fences={0: 10}, heads={0: 5})
    assert "was copied from offset 5 on" in obstacles([point])[0]

    for start, heads in ((5, {0: 5}), (2, {})):  # the mirror begins there too; or the parent had the records and deleted them
        assert (
            obstacles(reparent_points([held(10, start=start)], parent=[held(20, start=5)], fences={0: 10}, heads=heads)) == ()
        )


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))
def test_reparenting_without_obstacles_continues_a_prefix_of_the_parent(
    source: int, mirrored: int, fenced: int, own: int
) -> None:
    """Models logs as lists: two copies of one source, one of them fenced and then written to."""
    log = [f"record {number}" for number in range(source)]
    mirror, parent = log[:mirrored], [*log[:fenced], "fence", *(f"own {number}" for number in range(own))]
    fence = len(log[:fenced])

    points = reparent_points([held(len(mirror))], parent=[held(len(parent))], fences={0: fence})

    assert bool(obstacles(points)) == (mirror != parent[: len(mirror)] or len(mirror) > fence)
    if not obstacles(points):
        assert mirror + parent[len(mirror) :] == parent
        assert points[0].to_copy == len(parent) - len(mirror)
