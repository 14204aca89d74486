"""Single readings that are damaged or out of date move no consumer group; clusters are simulated."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import (
    Committed,
    Group,
    GroupOutcome,
    GroupStatus,
    GroupSync,
    KnownOffset,
    Memory,
    MirroredTopic,
    OffsetOutcome,
    Remembered,
)
from linkengine.domain.names import NameFilter
from linkengine.domain.plans import TopicDescription, TopicPartition
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.sync.groups import sync_groups
from linkengine.sync.offset_clamping import clamp_groups

PLACE: TopicPartition = ("t", 0)
GROUP = "app"
TOPIC = TopicDescription(name="t", topic_id="id", partitions=1, replication_factor=1, internal=False, configs={})
SYNC = GroupSync(filters=(NameFilter(name="*"),), topics=(MirroredTopic(source_topic="t", mirror_topic="t", partitions=1),))
AGO: Memory = {PLACE: Remembered(source=50, destination=50)}


class Responses:
    """A cluster with a group and a topic. ``damaged``: by value, what a reading of that number returns instead."""

    def __init__(
        self, *, offset: int | None, start: int = 0, end: int = 1_000, damaged: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        self.offset, self.start, self.end, self.damaged = offset, start, end, damaged or {}
        self.silent = False
        self.read: dict[str, int] = {}
        self.commits: list[int] = []

    def groups(self) -> tuple[dict[str, Group], str]:
        return {GROUP: Group(name=GROUP)}, ""

    def topics(self, names: Iterable[str], *, with_configs: bool) -> list[TopicDescription]:
        return [TOPIC for _ in names]

    def committed(
        self, groups: Iterable[str], *, stable_at: object = None, certain: bool = False
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, LinkEngineError]]:
        if certain and self.silent:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "A broker is silent.")
        offset = self._value("offset", self.offset)
        return {name: {} if offset is None else {PLACE: Committed(offset=offset)} for name in groups}, {}

    def many_offsets(self, places: Iterable[TopicPartition], kind: OffsetKind) -> dict[TopicPartition, int]:
        name, value = ("start", self.start) if kind is OffsetKind.START else ("end", self.end)
        return {place: cast(int, self._value(name, value)) for place in places}

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]], **_: object
    ) -> dict[str, dict[TopicPartition, None]]:
        for name, wanted in offsets.items():
            assert name == GROUP
            self.commits += [offset.offset for offset in wanted.values()]
        return {name: dict.fromkeys(wanted) for name, wanted in offsets.items()}

    def _value(self, name: str, value: int | None) -> int | None:
        self.read[name] = self.read.get(name, 0) + 1
        return self.damaged.get((name, self.read[name]), value)


def synced(there: Responses, here: Responses, *, memory: Memory = AGO) -> GroupOutcome:
    report = sync_groups(
        cast(ClusterAdmin, there),
        cast(ClusterAdmin, here),
        SYNC,
        recall=lambda _: {GROUP: memory},
        following=lambda topics: topics,
    )
    (outcome,) = report.groups
    return outcome


DAMAGES = [("offset", 50 + (1 << 8)), ("offset", 0), ("start", 900), ("start", 1 << 40), ("end", 3), ("end", 1 << 40)]


@pytest.mark.parametrize("reading", [1, 2])
@pytest.mark.parametrize(("value", "damage"), DAMAGES)
@pytest.mark.parametrize("side", ["source", "destination"])
def test_damaged_reading_moves_no_group_beyond_the_sources_offset_or_backwards(
    side: str, value: str, damage: int, reading: int
) -> None:
    damaged = {(value, reading): damage}
    there = Responses(offset=60, damaged=damaged if side == "source" else None)
    here = Responses(offset=50, damaged=damaged if side == "destination" else None)

    synced(there, here)

    assert all(50 <= offset <= 60 for offset in here.commits)


@pytest.mark.parametrize("reading", [1, 2])
@pytest.mark.parametrize("damage", [3, 49, 59])
def test_group_that_is_ahead_here_is_not_moved_back_by_a_damaged_reading(damage: int, reading: int) -> None:
    here = Responses(offset=900, damaged={("offset", reading): damage})

    synced(Responses(offset=60), here)

    assert here.commits == []


def test_group_whose_source_returns_an_older_offset_once_is_not_moved_back() -> None:
    """A coordinator that was cut off from the other brokers returns what was committed before."""
    there, here = Responses(offset=50, damaged={("offset", 1): 20}), Responses(offset=50)

    outcome = synced(there, here)

    assert here.commits == []
    assert outcome.status in {GroupStatus.SYNCED, GroupStatus.FAILED}


@pytest.mark.parametrize(("silent", "commits"), [(False, [20]), (True, [])])
def test_group_is_moved_back_only_while_all_brokers_of_the_source_respond(*, silent: bool, commits: list[int]) -> None:
    there, here = Responses(offset=20), Responses(offset=50)
    there.silent = silent

    outcome = synced(there, here)

    assert here.commits == commits
    assert outcome.status is (GroupStatus.FAILED if silent else GroupStatus.SYNCED)


def test_readings_that_contradict_each_other_are_reported_and_change_no_memory() -> None:
    there, here = Responses(offset=60, damaged={("offset", 2): 20}), Responses(offset=50)

    outcome = synced(there, here)

    assert here.commits == []
    assert [partition.outcome for partition in outcome.partitions] == [OffsetOutcome.FAILED]
    assert "contradict" in outcome.message


KNOWN = KnownOffset(group=GROUP, partition=0, source=60, remembered=Remembered(source=50, destination=50))


@pytest.mark.parametrize("reading", [1, 2])
@pytest.mark.parametrize(("value", "damage"), [("start", 90), ("start", 1 << 40), ("offset", 1 << 20), ("offset", 3)])
def test_stop_moves_groups_to_the_right_place_in_spite_of_a_damaged_reading(value: str, damage: int, reading: int) -> None:
    """Nothing corrects a stopped mirror's groups later: records would be skipped."""
    here = Responses(offset=50, damaged={(value, reading): damage})

    clamp_groups(cast(Any, here), "t", ends={0: 100}, known=[KNOWN])

    assert here.commits == [60]


@pytest.mark.parametrize(("reading", "damage"), [(1, 50), (2, 50), (1, 3)])
def test_stop_leaves_a_group_that_is_ahead_where_it_is(reading: int, damage: int) -> None:
    here = Responses(offset=90, damaged={("offset", reading): damage})

    clamp_groups(cast(Any, here), "t", ends={0: 100}, known=[KNOWN])

    assert here.commits == []


def test_stop_reports_a_group_whose_readings_never_agree() -> None:
    here = Responses(offset=50, damaged={("offset", reading): 200 + reading for reading in range(1, 9)} | {("offset", 2): 3})

    [row] = clamp_groups(cast(Any, here), "t", ends={0: 100}, known=[KNOWN])

    assert here.commits == []
    assert row.message
