"""Which copy worker is replaced so that the workers are spread over Spark's executors."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.workers import DEAD_MS, Heartbeat, crowded_worker, read_heartbeat, write_heartbeat

SLOTS = 2  # of each executor
FAR_TOO_OFTEN = 200


def beats(*executors: str, slots: int = SLOTS) -> list[Heartbeat]:
    """Return heartbeats of workers in these executors, the newest last."""
    return [
        Heartbeat(worker_id=f"{number:04d}-w", executor=name, executor_slots=slots, started_at_ms=number)
        for number, name in enumerate(executors)
    ]


@pytest.mark.parametrize(
    ("executors", "slots", "crowded"),
    [
        ((), 4, ""),
        (("a",), 4, ""),
        (("a", "b"), 4, ""),
        (("a", "a"), 4, "0001-w"),  # an executor with two slots has no worker
        (("a", "a"), 2, ""),  # there is no other executor
        (("a", "a"), None, ""),  # perhaps there is no other executor
        (("a", "b", "a"), 4, ""),
        (("a", "b", "a"), 6, "0002-w"),  # a third executor has joined
        (("a", "b", "a", "b"), 6, "0003-w"),
        (("", ""), 4, ""),  # local mode
        (("a", "a", ""), 6, ""),  # a worker of an earlier version
    ],
)
def test_worker_is_replaced_if_another_executor_has_two_fewer_and_a_free_slot(
    executors: tuple[str, ...], slots: int | None, crowded: str
) -> None:
    assert crowded_worker(beats(*executors), slots=slots) == crowded


def test_executor_without_a_free_slot_is_no_alternative() -> None:
    many, few = beats(*"aaaa", slots=4), beats(*"bb", slots=2)

    assert crowded_worker([*many, *few], slots=6) == ""
    assert crowded_worker([*many, *beats(*"bb", slots=3)], slots=7) == "0003-w"


def test_workers_that_have_ended_or_are_silent_do_not_count() -> None:
    first, second = beats("a", "a")
    ended = Heartbeat(worker_id="0001-w", executor="a", executor_slots=SLOTS, ended=True)
    silent = Heartbeat(worker_id="0001-w", executor="a", executor_slots=SLOTS, silent_ms=DEAD_MS + 1)

    assert crowded_worker([first, second], slots=4)
    assert not crowded_worker([first, ended], slots=4)
    assert not crowded_worker([first, silent], slots=4)


def test_executor_survives_the_heartbeats_text() -> None:
    (beat,) = beats("0@host")

    assert read_heartbeat(write_heartbeat(beat), silent_ms=0) == beat


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 1 << 32))
def test_replacements_in_random_executors_end_with_every_executor_in_use(executors: int, slots: int, seed: int) -> None:
    """Spark starts a task in a random executor with a free slot."""
    random = Random(seed)
    workers = random.randint(1, executors * slots)
    placed: list[str] = []

    def start() -> None:
        placed.append(random.choice([name for name in "abcd"[:executors] if placed.count(name) < slots]))

    for _ in range(workers):
        start()
    for _ in range(FAR_TOO_OFTEN):
        found = crowded_worker(beats(*placed, slots=slots), slots=executors * slots)
        if not found:
            break
        if len(placed) < executors * slots:
            start()  # the replacement starts before the crowded worker ends
        placed.pop(int(found.partition("-")[0]))

    counts = [placed.count(name) for name in "abcd"[:executors]]
    assert max(counts) - min(counts) <= 1
