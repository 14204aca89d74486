"""When staggered polls are sent and how their responses are planned, without brokers: the test responds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.pacing import Bandwidth
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source import staggered_polls
from linkengine.copyjob.source.fetch_planner import FetchEvents, FetchPlanner
from linkengine.copyjob.source.fetch_session import Place, Reading
from linkengine.copyjob.source.staggered_polls import MOST_PARTITIONS, POLLS, StaggeredPolls, Subject
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.kafka.requests import FetchedPartition, FetchPosition
from linkengine.kafka.topicviews import Leader
from tests.linkengine.batches.batchlog import Rec, dense, log_of
from tests.linkengine.copyjob.connections import TOPIC, FakeConnection
from tests.linkengine.copyjob.partitions import NOWHERE, partition, unexpected

ROUND_TRIP_S = 0.08


class PollConnection(FakeConnection[Subject]):
    """An extra connection that collects polls; there is always a buffer for a response."""

    def response(self, part: FetchedPartition, now: float) -> bool:
        responded = super().response(part, now)
        assert responded
        return responded


class Polled:
    """The staggered polls of a partition whose session has just had a response."""

    def __init__(self, *, limit: int = 0, round_trip_s: float = ROUND_TRIP_S) -> None:
        FakeConnection.made = []
        self.now = 100.0
        self.moved: list[PartitionState] = []
        services: Any = SimpleNamespace(
            tuning=SimpleNamespace(coalesce_bytes=1 << 20, fetch_wait_ms=500),
            pool=SimpleNamespace(loose=lambda _: None),
            bandwidth=Bandwidth(limit),
            clock=SimpleNamespace(monotonic=lambda: self.now, now_ms=lambda: 5),
        )
        events = FetchEvents(planned=lambda _: None, refused=unexpected, emptied=unexpected, lost=unexpected)
        self.polls = StaggeredPolls(services, NOWHERE, 0, planner=FetchPlanner(services, events), moved=self.moved.append)
        self.mirror = partition()
        self.mirror.stage, self.mirror.position = Stage.COPYING, 10
        self.mirror.origin = SourceOrigin(Leader(broker=0, epoch=3), TOPIC)
        self.polls.opened(round_trip_s)
        self.polls.session_responded(self.now, size=300, news=True)
        self.polls.session_sent(self.now)

    def entries(self, count: int = 1) -> dict[Place, Reading]:
        assert self.mirror.position is not None
        reading = Reading(self.mirror, self.mirror.attempt, FetchPosition(0, 3, self.mirror.position, 1 << 20))
        return {(TOPIC, number): reading for number in range(count)}

    def pump_for(self, seconds: float, *, partitions: int = 1) -> list[float]:
        """Run a turn every millisecond; return the times at which polls were sent."""
        sent, until = [], self.now + seconds
        while self.now < until:
            before = sum(each.outstanding for each in FakeConnection.made)
            self.polls.pump(self.now, self.entries(partitions))
            if sum(each.outstanding for each in FakeConnection.made) > before:
                sent.append(self.now)
            self.now += 0.001
        return sent

    def part(self, first: int, count: int) -> FetchedPartition:
        records = log_of(*(dense(offset, [Rec(value=b"%d" % offset)]) for offset in range(first, first + count)))
        return FetchedPartition(TOPIC, 0, 0, first + count, first + count, 0, (), records)


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(staggered_polls, "ExtraConnection", PollConnection)
    yield
    FakeConnection.made = []


def test_polls_are_sent_a_fraction_of_a_round_trip_apart() -> None:
    polled = Polled()

    sent = polled.pump_for(ROUND_TRIP_S)

    assert len(sent) == POLLS - 1
    gaps = [later - earlier for earlier, later in zip([100.0, *sent], sent, strict=False)]
    assert all(gap == pytest.approx(ROUND_TRIP_S / POLLS, abs=0.002) for gap in gaps)


def test_polls_with_simultaneous_responses_are_staggered_again() -> None:
    polled = Polled()
    polled.pump_for(0.5)
    for connection in FakeConnection.made:
        connection.response(polled.part(10, 1), polled.now)

    sent = polled.pump_for(ROUND_TRIP_S)

    assert len(sent) == POLLS - 1
    assert min(later - earlier for earlier, later in itertools.pairwise(sent)) >= ROUND_TRIP_S / POLLS - 0.002


def test_overlapping_responses_are_planned_once() -> None:
    polled = Polled()
    polled.pump_for(ROUND_TRIP_S)
    first, second, third = FakeConnection.made

    first.response(polled.part(10, 3), polled.now)
    after_first = polled.mirror.position
    second.response(polled.part(10, 3), polled.now)
    third.response(polled.part(10, 5), polled.now)

    assert (after_first, polled.mirror.position) == (13, 15)
    assert [[step.start for step in chunk.steps] for chunk in polled.mirror.chunks] == [[10], [13]]
    assert polled.moved == [polled.mirror, polled.mirror]


def test_response_of_an_earlier_attempt_is_not_used() -> None:
    polled = Polled()
    polled.pump_for(ROUND_TRIP_S)

    polled.mirror.attempt += 1
    FakeConnection.made[0].response(polled.part(10, 3), polled.now)

    assert (polled.mirror.position, polled.moved) == (10, [])


def test_response_of_a_former_leader_is_not_used() -> None:
    polled = Polled()
    polled.pump_for(ROUND_TRIP_S)

    polled.mirror.origin = SourceOrigin(Leader(broker=1, epoch=4), TOPIC)
    FakeConnection.made[0].response(polled.part(10, 3), polled.now)

    assert (polled.mirror.position, polled.moved) == (10, [])


def test_near_sources_and_limited_links_are_not_polled() -> None:
    assert Polled(round_trip_s=0.001).pump_for(1.0) == []
    assert Polled(limit=1_000_000).pump_for(1.0) == []


def test_many_partitions_are_left_to_the_session() -> None:
    polled = Polled()

    assert polled.pump_for(1.0, partitions=MOST_PARTITIONS + 1) == []
    due = polled.polls.due(polled.now)
    assert due is None or due > polled.now - 0.001 - 0.02


def test_backlog_and_idleness_end_the_polls() -> None:
    polled = Polled()
    polled.polls.session_responded(polled.now, size=1 << 20, news=True)
    assert polled.pump_for(1.0) == []

    quiet = Polled()
    quiet.now += staggered_polls.ACTIVE_S + 1
    assert quiet.pump_for(1.0) == []
    quiet.pump_for(0.0)
    quiet.polls.check(quiet.now + staggered_polls.CLOSE_S)
    assert quiet.polls.connections == 0
