"""Where two topics parted, as the topic goes on changing."""

from __future__ import annotations

from linkengine.domain.plans import LogRange
from linkengine.domain.restoring import RestorePoint, as_held_now, restore_points

HELD = (LogRange(partition=0, start=0, end=12, stable_end=12), LogRange(partition=1, start=3, end=8, stable_end=8))


def test_what_is_beyond_the_common_part_diverged() -> None:
    points = restore_points(HELD, common={0: 10})
    assert [(one.point, one.diverged) for one in points] == [(10, 2), (0, 5)]


def test_points_follow_retention_and_records_that_came_late() -> None:
    points = restore_points(HELD, common={0: 10})
    now = as_held_now(points, held=[LogRange(partition=0, start=11, end=14, stable_end=14)])
    assert now == (RestorePoint(partition=0, start=11, end=14, common=10), points[1])
    assert [one.diverged for one in now] == [3, 5]
