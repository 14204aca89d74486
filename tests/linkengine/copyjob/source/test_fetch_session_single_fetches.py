"""Partitions that are fetched alone do not delay the others."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.event_loop import Poller
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source.fetch_planner import FetchEvents
from linkengine.copyjob.source.fetcher import BrokerFetcher
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.kafka.requests import FETCH_BY_ID
from linkengine.kafka.topicviews import Leader
from tests.linkengine.batches.batchlog import Rec, dense
from tests.linkengine.copyjob.copying import wait_for
from tests.linkengine.copyjob.partitions import partition, unexpected
from tests.linkengine.copyjob.scripted import END, Places, Scripted, ScriptedBroker

MANY, LIVE = 200, 0
TOPIC = bytes(range(16))


def reading(number: int, *, position: int) -> PartitionState:
    mirror = partition(number)
    mirror.stage, mirror.position, mirror.origin = Stage.COPYING, position, SourceOrigin(Leader(broker=0, epoch=1), TOPIC)
    return mirror


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker whose partitions all end at offset 10; it returns only a record of the live partition, at its second Fetch."""
    requested = [0]

    def news(places: Places) -> Scripted:
        requested[0] += any(number == LIVE for _, number in places)
        return {LIVE: (END + 1, dense(END, [Rec(value=b"new")]).encode())} if requested[0] == 2 else {}

    scripted = ScriptedBroker(fetch=FETCH_BY_ID, news=news)
    yield scripted
    scripted.close()


def test_partitions_fetched_alone_delay_no_other_and_each_is_fetched_once(
    services: Services, poller: Poller, broker: ScriptedBroker
) -> None:
    planned: list[int] = []
    emptied: list[int] = []
    alone_before: list[int] = []

    def came(mirror: PartitionState) -> None:
        alone_before.append(len(emptied))
        planned.append(mirror.assignment.partition)

    def found_empty(mirror: PartitionState, _: int) -> None:
        mirror.examining = True  # as the source side does: nothing is fetched until the check has ended
        emptied.append(mirror.assignment.partition)

    events = FetchEvents(planned=came, refused=unexpected, emptied=found_empty, lost=unexpected)
    cluster: Any = SimpleNamespace(open=broker.connected)
    source = BrokerFetcher(services, cluster, 0, events=events)
    for number in range(MANY + 1):
        source.adopt(reading(number, position=END if number == LIVE else 0))

    def turn() -> bool:
        poller.wait(0.01)
        source.pump(services.clock.monotonic())
        return len(emptied) == MANY

    wait_for(turn, deadline_s=60)
    source.close()

    assert planned == [LIVE]
    assert alone_before[0] <= 1
    assert sorted(emptied) == list(range(1, MANY + 1))
