"""Which takes of the benchmark count: by the steal time during a take, never by its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.steal_time import Stolen, Takes, undisturbed_takes

TAKES = Takes(wanted=3, most=9)


@dataclass(frozen=True)
class Take:
    stolen: float
    p99_ms: float = 0.0


def _taken(takes: list[Take], *, wanted: Takes = TAKES) -> tuple[list[Take], int]:
    rest: Iterator[Take] = iter(takes)
    found = undisturbed_takes(lambda: next(rest), wanted)
    return found, len(takes) - len(list(rest))


def test_no_more_than_needed_are_taken() -> None:
    found, taken = _taken([Take(0.0), Take(0.01), Take(0.02), Take(0.0)])
    assert taken == TAKES.wanted
    assert found == [Take(0.0), Take(0.01), Take(0.02)]


def test_a_disturbed_take_is_made_up_for_however_good_its_figures_are() -> None:
    found, taken = _taken([Take(0.3, p99_ms=1.0), Take(0.0, p99_ms=90.0), Take(0.0, p99_ms=80.0), Take(0.0, p99_ms=70.0)])
    assert taken == TAKES.wanted + 1
    assert {take.p99_ms for take in found} == {90.0, 80.0, 70.0}


def test_a_measurement_can_have_a_lower_limit_of_steal_time() -> None:
    found, taken = _taken([Take(0.01), Take(0.001), Take(0.0)], wanted=Takes(wanted=1, most=3, max_stolen=0.002))
    assert taken == 2
    assert found == [Take(0.001)]


def test_takes_with_the_least_steal_time_count_if_all_are_disturbed() -> None:
    found, taken = _taken([Take(share / 100) for share in (90, 50, 40, 30, 60, 70, 80, 20, 10, 5)])
    assert taken == TAKES.most
    assert [take.stolen for take in found] == [0.1, 0.2, 0.3]


def test_steal_time_is_a_share_of_all_processor_time() -> None:
    assert 0.0 <= Stolen().share() <= 1.0
