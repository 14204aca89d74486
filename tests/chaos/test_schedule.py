"""The schedule of faults is a function of the seed."""

import itertools
from collections.abc import Iterator

from chaos.schedule import ENGINE_FAULTS, PRODUCT_FAULTS, QUIET_END_S, Fault, ScheduledFault, schedule, short_storm

MENDED_S = 1.0  # until a part works again
PARTS = {
    "source's brokers": {Fault.KILL_SOURCE, Fault.STOP_SOURCE, Fault.FILL_SOURCE},
    "destination's brokers": {Fault.KILL_DESTINATION, Fault.STOP_DESTINATION, Fault.FILL_DESTINATION},
    "source's network": {Fault.CUT_SOURCE, Fault.HOLD_SOURCE, Fault.SLOW_SOURCE},
    "destination's network": {Fault.CUT_DESTINATION, Fault.HOLD_DESTINATION, Fault.SLOW_DESTINATION},
    "Redis": {
        Fault.KILL_REDIS, Fault.LOSE_REDIS, Fault.FLUSH_REDIS, Fault.CLOCK_FORWARD, Fault.CLOCK_BACK, Fault.SECOND_OWNER,
        Fault.CUT_REDIS,
    },
    "copiers": {Fault.KILL_COPIER, Fault.STOP_COPIER, Fault.CUT_REDIS},
}  # fmt: skip
# what a fault needs while it is caused: parts that no other fault may have broken
NEEDS = {
    Fault.FAILOVER: ("destination's brokers", "destination's network"),
    Fault.REBALANCE_PROMOTION: (
        "source's brokers", "destination's brokers", "destination's network", "Redis", "copiers"
    ),
    **dict.fromkeys((Fault.DRAIN, Fault.REBALANCE, Fault.TWO_ASSIGNERS, Fault.STALE_ASSIGNMENT), ("Redis", "copiers")),
}  # fmt: skip
CAUSED_S = 2.0  # how long a move takes


def test_the_schedule_depends_on_the_seed_only() -> None:
    assert schedule(seed=7, seconds=120) == schedule(seed=7, seconds=120)
    assert schedule(seed=7, seconds=120) != schedule(seed=8, seconds=120)


def test_every_fault_occurs_before_any_is_repeated() -> None:
    scheduled = schedule(seed=3, seconds=3_600)

    first = [fault.kind for fault in scheduled[: len(Fault)]]
    assert sorted(first) == sorted(Fault)


def test_faults_are_in_order_and_end_before_the_storm_does() -> None:
    scheduled = schedule(seed=5, seconds=60)

    times = [fault.at_s for fault in scheduled]
    assert times == sorted(times)
    assert times[-1] < 60 - QUIET_END_S
    assert all(0 <= fault.pick < 1 for fault in scheduled)


def clashes(scheduled: tuple[ScheduledFault, ...]) -> Iterator[tuple[str, Fault, Fault]]:
    """Yield pairs of faults of which the second finds its part broken already, so that it has no effect."""
    for part, faults in PARTS.items():
        own = [fault for fault in scheduled if fault.kind in faults]
        for first, second in itertools.pairwise(own):
            if second.at_s < first.at_s + first.lasts_s + MENDED_S:
                yield part, first.kind, second.kind


def obstacles(scheduled: tuple[ScheduledFault, ...]) -> Iterator[tuple[Fault, Fault]]:
    """Yield faults that need a part, with the fault that has broken this part at that time."""
    for fault in scheduled:
        for breaking in (other for part in NEEDS.get(fault.kind, ()) for other in scheduled if other.kind in PARTS[part]):
            begins_before_its_end = fault.at_s < breaking.at_s + breaking.lasts_s + MENDED_S
            if begins_before_its_end and breaking.at_s < fault.at_s + fault.lasts_s + CAUSED_S:
                yield fault.kind, breaking.kind


def test_only_a_storm_on_a_standalone_cluster_kills_the_spark_master() -> None:
    assert set(PRODUCT_FAULTS) == set(Fault) - {Fault.KILL_MASTER}
    assert set(ENGINE_FAULTS) < set(PRODUCT_FAULTS)


def test_the_short_storm_has_every_engine_fault_and_none_hits_a_broken_part() -> None:
    scheduled = short_storm()

    assert {fault.kind for fault in scheduled} == set(ENGINE_FAULTS)
    assert list(clashes(scheduled)) == []
    assert list(obstacles(scheduled)) == []
