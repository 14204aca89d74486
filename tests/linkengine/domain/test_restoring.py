"""Offset arithmetic of truncate-and-restore, while the topics keep changing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from linkengine.domain.mirrorjobs import (
    CommonPart,
    RestorePoint,
    as_held_now,
    common_ends,
    ends_behind_takeover_markers,
    not_common,
    restore_points,
)
from linkengine.domain.plans import LogRange
from linkengine.domain.ranges import OffsetRange


def held(*bounds: tuple[int, int]) -> list[LogRange]:
    return [LogRange(partition=number, start=start, end=end, stable_end=end) for number, (start, end) in enumerate(bounds)]


HELD, OTHER = held((0, 12), (3, 8)), held((0, 20), (0, 20))


def test_offsets_beyond_the_common_part_are_diverged() -> None:
    points = restore_points(HELD, common={0: 10}, other=OTHER)
    assert [(point.point, point.diverged) for point in points] == [(10, 2), (0, 5)]


def test_points_follow_retention_and_late_records() -> None:
    points = restore_points(HELD, common={0: 10}, other=OTHER)
    now = as_held_now(points, held=held((11, 14)), other=held((9, 30), (0, 30)))
    assert now == (RestorePoint(partition=0, start=11, end=14, common=10, other_start=9), points[1])
    assert [point.diverged for point in now] == [3, 5]


def test_offsets_before_the_other_sides_start_are_diverged() -> None:
    first, second = restore_points(held((0, 12), (3, 8)), common={0: 10, 1: 8}, other=held((4, 20), (1, 20)))
    assert first.diverged_ranges == (OffsetRange(0, 4), OffsetRange(10, 12))
    assert (first.point, first.diverged) == (10, 6)
    assert second.diverged_ranges == ()

    [all_of_it] = restore_points(held((0, 12)), common={0: 10}, other=held((15, 20)))
    assert all_of_it.diverged_ranges == (OffsetRange(0, 10), OffsetRange(10, 12))


def test_offsets_that_the_other_side_deletes_at_its_start_become_diverged() -> None:
    before = restore_points(held((0, 12), (3, 8)), common={0: 10, 1: 8}, other=held((4, 20), (1, 20)))
    now = as_held_now(before, held=held((6, 12), (3, 8)), other=held((9, 20), (2, 20)))
    assert [point.head_since(old.other_start) for point, old in zip(now, before, strict=True)] == [
        OffsetRange(6, 9),
        OffsetRange(3, 3),
    ]
    beyond = as_held_now(now, held=held((6, 12), (3, 8)), other=held((15, 20), (2, 20)))
    assert (beyond[0].head_since(9), beyond[0].head_since(15), beyond[0].tail) == (
        OffsetRange(9, 10),
        OffsetRange(15, 15),
        OffsetRange(10, 12),
    )


def test_offsets_that_the_other_side_lost_or_never_had_are_not_common() -> None:
    points = restore_points(held((0, 12), (0, 8)), common={0: 10, 1: 8}, other=held((0, 7)))
    assert [point.diverged_ranges for point in points] == [(OffsetRange(7, 12),), (OffsetRange(0, 8),)]
    assert not_common(points, common={0: 7}) == ()
    assert not_common(points, common={0: 6}) == (0,)
    assert not_common(points, common={}) == (0,)


def test_offsets_that_the_other_side_lost_since_become_diverged() -> None:
    here = held((0, 12), (0, 8))
    points = restore_points(here, common={0: 10, 1: 8}, other=held((0, 20), (0, 20)))

    now = as_held_now(points, held=here, other=held((0, 20), (0, 20)), common={0: 6, 1: 9})

    assert [(point.common, point.tail) for point in now] == [(6, OffsetRange(6, 12)), (8, OffsetRange(8, 8))]
    assert as_held_now(points, held=here, other=(), common=None) == points  # unknown


def test_a_truncated_source_limits_the_common_part_to_what_it_kept() -> None:
    part = CommonPart(here_id="A", there_id="B", ends={0: 10, 1: 8, 2: 5}, epochs={0: 3, 1: 3})
    assert part.as_kept({0: 12, 1: 6}).ends == {0: 10, 1: 6, 2: 0}


def test_only_common_parts_of_the_same_topic_ids_count() -> None:
    older = CommonPart(here_id="A-1", there_id="B-1", ends={0: 50_000})
    newer = CommonPart(here_id="A-1", there_id="B-2", ends={0: 20_000, 1: 7})
    assert common_ends([older, newer], here_id="A-1", there_id="B-2") == {0: 20_000, 1: 7}
    assert common_ends([older, newer], here_id="A-2", there_id="B-2") == {}


def test_of_two_common_parts_of_the_same_topics_the_higher_end_counts() -> None:
    there = CommonPart(here_id="A", there_id="B", ends={0: 10, 1: 3})
    back = CommonPart(here_id="A", there_id="B", ends={0: 8, 1: 5})
    assert common_ends([there, back], here_id="A", there_id="B") == {0: 10, 1: 5}


def test_an_added_partition_gets_a_point_once_it_holds_records() -> None:
    points = restore_points(held((0, 12)), common={0: 10}, other=held((0, 20)))
    assert as_held_now(points, held=held((0, 12), (0, 0)), other=held((0, 20))) == points

    *_, added = as_held_now(points, held=held((0, 12), (0, 3)), other=held((0, 20), (0, 20)))
    assert (added.partition, added.diverged_ranges) == (1, (OffsetRange(0, 3),))


def test_a_partition_whose_fence_was_lost_has_no_common_part() -> None:
    part = CommonPart(here_id="A", there_id="B", ends={0: 10, 1: 8})
    assert part.without([0]).ends == {1: 8}


# A was fenced at offset 10 as a copy of B; then B has taken over, was paused, and was fenced at 11 as a copy of A.
FENCED = CommonPart(here_id="A", there_id="B", ends={0: 10}, fences={0: 10}, epochs={0: 3})
TAKEN_OVER = CommonPart(here_id="A", there_id="B", ends={0: 11}, fences={0: 11}, source_is_here=True)


def test_fence_is_common_with_the_takeover_marker_of_a_source_that_has_read_nothing_since() -> None:
    assert ends_behind_takeover_markers(FENCED, TAKEN_OVER) == {0: 11}
    assert ends_behind_takeover_markers(replace(FENCED, source_is_here=True), replace(TAKEN_OVER, source_is_here=False)) == {
        0: 11
    }
    assert ends_behind_takeover_markers(FENCED, replace(TAKEN_OVER, fences={0: 13})) == {
        0: 11
    }  # a foreign write behind the takeover marker


@pytest.mark.parametrize(
    ("of_fence", "of_takeover"),
    [
        ({"ends": {}}, {}),
        ({"ends": {0: 9}}, {}),
        ({"fences": {}}, {}),
        ({"fences": {0: 12}}, {}),
        ({"by_markers": False}, {}),
        ({}, {"by_markers": False}),
        ({}, {"ends": {}}),
        ({}, {"ends": {0: 10}}),
        ({}, {"ends": {0: 12}}),
        ({}, {"ends": {1: 11}}),
        ({}, {"epochs": {0: 4}}),
        ({}, {"source_is_here": False}),
    ],
    ids=[
        "fence lost",
        "end of the source lost",
        "fence not recorded",
        "foreign write before the fence",
        "fence by a transaction",
        "takeover by a transaction",
        "fence of the side that was taken over lost",
        "not taken over",
        "more than the takeover marker",
        "another partition",
        "read since, so its epochs decide",
        "same direction",
    ],
)
def test_fence_is_not_common_unless_every_proof_is_there(of_fence: dict[str, Any], of_takeover: dict[str, Any]) -> None:
    assert ends_behind_takeover_markers(replace(FENCED, **of_fence), replace(TAKEN_OVER, **of_takeover)) == {}


def test_a_common_part_survives_conversion_to_json() -> None:
    part = CommonPart(
        here_id="A",
        there_id="B",
        ends={0: 10, 1: 8},
        epochs={0: 3},
        fences={0: 11},
        fence_epochs={0: 2},
        by_markers=False,
        source_is_here=True,
    )

    assert CommonPart.from_json(json.loads(json.dumps(part.to_json()))) == part
    assert CommonPart.from_json({"here_id": "A", "there_id": "B", "ends": []}) == CommonPart(here_id="A", there_id="B", ends={})


def test_partitions_with_a_lower_common_end_are_listed() -> None:
    points = [RestorePoint(partition=number, start=0, end=20, common=common) for number, common in enumerate((10, 0, 5, 7))]

    assert not_common(points, common={0: 9, 2: 6}) == (0, 3)
