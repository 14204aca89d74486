"""Figures of the steady writer and reader: delays, gaps of places, and a writer that has died."""

from __future__ import annotations

import pytest

from bench.steady import Arrival, Place, summarize

A, B = ("a", 0), ("b", 0)
BEGAN, ENDED = 10_000.0, 20_000.0


def _steady(place: Place, *, delay_ms: float = 5.0, without: range = range(0)) -> list[Arrival]:
    """Return a record every 100 ms, from a second before the beginning until a second after the end."""
    times = [float(at) for at in range(9_000, 21_000, 100) if at not in without]
    return [(place, at, at + delay_ms) for at in times]


def _gaps(found: list[Arrival]) -> dict[Place, float]:
    take = summarize(found, places=frozenset({A, B}), began_ms=BEGAN, ended_ms=ENDED)
    return dict(take.gaps_s)


def test_a_partition_without_records_has_the_whole_take_as_its_gap() -> None:
    assert _gaps(_steady(A))[B] == 10.0


@pytest.mark.parametrize(
    ("silent", "gap_s"),
    [(range(9_000, 13_000), 3.0), (range(17_000, 21_000), 3.1), (range(14_000, 16_000), 2.1)],
    ids=["at the beginning", "at the end", "in the middle"],
)
def test_gaps_are_measured_from_the_beginning_to_the_end_of_the_take(silent: range, gap_s: float) -> None:
    assert _gaps(_steady(A) + _steady(B, without=silent))[B] == pytest.approx(gap_s, abs=0.01)


def test_a_place_that_receives_records_all_the_time_has_only_their_interval_as_gap() -> None:
    assert _gaps(_steady(A) + _steady(B)) == {A: pytest.approx(0.1), B: pytest.approx(0.1)}


def test_only_records_sent_within_the_take_count_also_if_they_arrive_later() -> None:
    found = [*_steady(A), *_steady(B), (A, 19_999.0, 21_500.0), (A, 9_999.0, 15_000.0)]

    take = summarize(found, places=frozenset({A, B}), began_ms=BEGAN, ended_ms=ENDED)

    assert take.worst_ms == 1_501.0
    assert take.records_per_s == 20.1
    assert take.worst[0] == "a-0: sent after   9.999 s, delay   1501.0 ms"
    assert len(take.worst) == 10


def test_records_of_other_places_are_not_counted() -> None:
    found = [*_steady(A), *_steady(B, delay_ms=900.0)]

    take = summarize(found, places=frozenset({A}), began_ms=BEGAN, ended_ms=ENDED)

    assert (take.records_per_s, take.worst_ms) == (10.0, 5.0)
    assert take.gap_s == pytest.approx(0.1)


def test_a_take_without_records_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="No record"):
        summarize([], places=frozenset({A}), began_ms=BEGAN, ended_ms=ENDED)
