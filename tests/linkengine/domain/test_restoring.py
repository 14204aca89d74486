"""Where two topics parted, as the topic goes on changing."""

from __future__ import annotations

from linkengine.domain.plans import LogRange
from linkengine.domain.restoring import CommonPart, RestorePoint, as_held_now, common_ends, restore_points

HELD = (LogRange(partition=0, start=0, end=12, stable_end=12), LogRange(partition=1, start=3, end=8, stable_end=8))


def test_what_is_beyond_the_common_part_diverged() -> None:
    points = restore_points(HELD, common={0: 10})
    assert [(one.point, one.diverged) for one in points] == [(10, 2), (0, 5)]


def test_points_follow_retention_and_records_that_came_late() -> None:
    points = restore_points(HELD, common={0: 10})
    now = as_held_now(points, held=[LogRange(partition=0, start=11, end=14, stable_end=14)])
    assert now == (RestorePoint(partition=0, start=11, end=14, common=10), points[1])
    assert [one.diverged for one in now] == [3, 5]


def test_only_a_copy_of_these_very_topics_tells_what_they_have_in_common() -> None:
    older = CommonPart(here_id="A-1", there_id="B-1", ends={0: 50_000})
    newer = CommonPart(here_id="A-1", there_id="B-2", ends={0: 20_000, 1: 7})
    assert common_ends([older, newer], here_id="A-1", there_id="B-2") == {0: 20_000, 1: 7}
    assert common_ends([older, newer], here_id="A-2", there_id="B-2") == {}


def test_of_two_copies_of_the_same_topics_the_one_that_came_further_counts() -> None:
    there = CommonPart(here_id="A", there_id="B", ends={0: 10, 1: 3})
    back = CommonPart(here_id="A", there_id="B", ends={0: 8, 1: 5})
    assert common_ends([there, back], here_id="A", there_id="B") == {0: 10, 1: 5}
