"""The seed decides everything."""

from chaos.schedule import QUIET_END_S, Fault, schedule


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
