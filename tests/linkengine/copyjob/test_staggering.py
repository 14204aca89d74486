"""Periodic work of 50 links that begin together is spread over its interval, by a simulated clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from linkengine.copyjob.broker_link import Services, stagger_of
from linkengine.copyjob.destination import maintenance
from linkengine.copyjob.event_loop import LinkThreads
from linkengine.copyjob.progress_reports import ReportSchedule
from linkengine.copyjob.source import data_loss, leaders
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.copyjob.worker import TICK_S
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import NOWHERE, owned, partition, unexpected

LINKS = [f"link-{number}" for number in range(50)]
Tick = Callable[[float], object]


class Counting:
    """Background threads that count jobs and run none."""

    def __init__(self) -> None:
        self.jobs = 0

    def submit(self, _job: object, **_events: object) -> None:
        self.jobs += 1


def ticks_maintenance(services: Services) -> Tick:
    watch = maintenance.Maintenance(services, NOWHERE, read_starts=unexpected, on_moved_end=unexpected)
    mirrors = {0: [owned(generation=9, clean=True)]}
    return lambda now: watch.tick(now, mirrors)


def ticks_leader_watch(services: Services) -> Tick:
    watch = leaders.LeaderWatch(services, NOWHERE, succeeded=unexpected)
    return lambda now: watch.tick(now, {})


def ticks_bounds_watch(services: Services) -> Tick:
    events = data_loss.WatchEvents(seen=unexpected, refused=unexpected)
    watch = data_loss.SourceWatch(services, NOWHERE, events)
    mirror = partition()
    mirror.stage, mirror.origin = Stage.COPYING, SourceOrigin(leader=Leader(broker=0, epoch=1), topic=bytes(16))
    return lambda now: watch.tick(now, {(0, 0): [mirror]})


@pytest.mark.parametrize(
    ("ticks", "every_s"),
    [
        (ticks_maintenance, maintenance.EVERY_S),
        (ticks_leader_watch, leaders.EVERY_S),
        (ticks_bounds_watch, data_loss.EVERY_S),
    ],
)
def test_background_checks_of_many_links_are_spread_over_their_interval(
    services: Services, ticks: Callable[[Services], Tick], every_s: float
) -> None:
    first: dict[str, float] = {}
    links: dict[str, tuple[Counting, Tick]] = {}
    for name in LINKS:
        background = Counting()
        own = replace(services, background=cast(LinkThreads, background), stagger=stagger_of(name))
        links[name] = background, ticks(own)

    for number in range(int(every_s / TICK_S) + 2):
        for name, (background, tick) in links.items():
            tick(number * TICK_S)
            if background.jobs:
                first.setdefault(name, number * TICK_S)

    assert first.keys() == set(LINKS)
    assert max(Counter(int(at / every_s * 20) for at in first.values()).values()) <= 8  # in a twentieth of the interval


def test_reports_of_many_links_are_spread_over_their_interval() -> None:
    schedules: list[Any] = []
    for name in LINKS:
        schedules.append(ReportSchedule(every_s=0.5, stagger=stagger_of(name)))
        schedules[-1].add(partition())

    times = [number * TICK_S for number in range(100) for schedule in schedules if schedule.due(number * TICK_S)]

    assert times.count(0.0) == len(LINKS)  # a link's first report is immediate
    assert max(Counter(at for at in times if at).values()) <= 10
    assert len(times) >= 4 * len(LINKS)


def test_stagger_depends_on_the_name_only() -> None:
    staggers = [stagger_of(name) for name in LINKS]

    assert staggers == [stagger_of(name) for name in LINKS]
    assert all(0 <= stagger < 1 for stagger in staggers)
    assert len(set(staggers)) == len(LINKS)
