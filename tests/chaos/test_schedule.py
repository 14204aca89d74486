"""The seed decides everything."""

import itertools
from collections.abc import Iterator

from chaos.schedule import ENGINE_FAULTS, QUIET_END_S, Fault, Strike, schedule, short_storm

MENDED_S = 1.0  # until a part is whole again
PARTS = {
    "source's brokers": {Fault.KILL_SOURCE, Fault.STOP_SOURCE, Fault.FILL_SOURCE},
    "destination's brokers": {Fault.KILL_DESTINATION, Fault.STOP_DESTINATION, Fault.FILL_DESTINATION},
    "source's network": {Fault.CUT_SOURCE, Fault.HOLD_SOURCE, Fault.SLOW_SOURCE},
    "destination's network": {Fault.CUT_DESTINATION, Fault.HOLD_DESTINATION, Fault.SLOW_DESTINATION},
    "Redis": {
        Fault.KILL_REDIS, Fault.LOSE_REDIS, Fault.FLUSH_REDIS, Fault.CLOCK_FORWARD, Fault.CLOCK_BACK, Fault.SECOND_OWNER,
        Fault.CUT_REDIS,
    },
    "copiers": {Fault.KILL_COPIER, Fault.STOP_COPIER},
}  # fmt: skip


def test_the_same_seed_gives_the_same_storm_and_another_seed_another() -> None:
    assert schedule(seed=7, seconds=120) == schedule(seed=7, seconds=120)
    assert schedule(seed=7, seconds=120) != schedule(seed=8, seconds=120)


def test_every_fault_comes_before_any_comes_again() -> None:
    strikes = schedule(seed=3, seconds=3_600)

    first = [strike.fault for strike in strikes[: len(Fault)]]
    assert sorted(first) == sorted(Fault)


def test_strikes_are_in_order_and_leave_the_end_quiet() -> None:
    strikes = schedule(seed=5, seconds=60)

    times = [strike.at_s for strike in strikes]
    assert times == sorted(times)
    assert times[-1] < 60 - QUIET_END_S
    assert all(0 <= strike.pick < 1 for strike in strikes)


def clashes(strikes: tuple[Strike, ...]) -> Iterator[tuple[str, Fault, Fault]]:
    """Pairs of strikes of which the second finds its part broken, and does nothing."""
    for part, faults in PARTS.items():
        own = [strike for strike in strikes if strike.fault in faults]
        for one, other in itertools.pairwise(own):
            if other.at_s < one.at_s + one.lasts_s + MENDED_S:
                yield part, one.fault, other.fault


def test_the_short_storm_has_every_fault_of_the_copy_loop_and_each_finds_its_part_whole() -> None:
    strikes = short_storm()

    assert {strike.fault for strike in strikes} == set(ENGINE_FAULTS)
    assert list(clashes(strikes)) == []
