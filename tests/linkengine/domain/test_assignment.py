"""Assignment of partitions to workers: every partition gets a worker, few move per call, and loads become balanced."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.assignment import BALANCED, Place, Wanted, assign, tenth

MOST_ROUNDS = 200
_WORKERS = [f"w{number}" for number in range(5)]
_rates = st.one_of(st.none(), st.floats(0, 5e8))


@st.composite
def _pools(draw: st.DrawFn) -> tuple[list[Wanted], list[Place]]:
    names = draw(st.lists(st.sampled_from(_WORKERS), min_size=1, unique=True))
    places = [Place(worker_id=name, host=draw(st.sampled_from(["a", "b"])), draining=draw(st.booleans())) for name in names]
    count = draw(st.integers(0, 40))
    partitions = [
        Wanted(
            key=f"m{number}/0",
            link_id=draw(st.sampled_from(["l1", "l2", "l3"])),
            worker_id=draw(st.sampled_from(["", "gone", *names])),
            bytes_per_s=draw(_rates),
        )
        for number in range(count)
    ]
    return partitions, places


def _after(partitions: list[Wanted], moves: dict[str, str]) -> list[Wanted]:
    return [replace(partition, worker_id=moves.get(partition.key, partition.worker_id)) for partition in partitions]


def _loads(partitions: list[Wanted]) -> dict[str, float]:
    return {each.worker_id: sum(other.load for other in partitions if other.worker_id == each.worker_id) for each in partitions}


def _alike(partitions: int, *, on: str = "", rate: float | None = None) -> list[Wanted]:
    return [Wanted(key=f"m/{number}", link_id="l", worker_id=on, bytes_per_s=rate) for number in range(partitions)]


@given(_pools())
def test_partitions_without_a_worker_are_assigned_at_once_to_a_worker_that_is_not_draining(
    pool: tuple[list[Wanted], list[Place]],
) -> None:
    partitions, places = pool
    staying = {place.worker_id for place in places if not place.draining}
    known = {place.worker_id for place in places}

    moves = assign(partitions, places)

    assert set(moves.values()) <= staying
    if staying:
        assert all(partition.key in moves for partition in partitions if partition.worker_id not in known)
    else:
        assert moves == {}


@given(_pools())
def test_at_most_a_tenth_of_the_assigned_partitions_move_per_call(pool: tuple[list[Wanted], list[Place]]) -> None:
    partitions, places = pool
    known = {place.worker_id for place in places}

    moves = assign(partitions, places)

    moved = [partition for partition in partitions if partition.key in moves and partition.worker_id in known]
    assert len(moved) <= tenth(len(partitions))
    assert all(moves[partition.key] != partition.worker_id for partition in moved)


@given(_pools())
def test_the_result_does_not_depend_on_the_order_of_partitions_and_workers(pool: tuple[list[Wanted], list[Place]]) -> None:
    partitions, places = pool

    assert assign(partitions, places) == assign(partitions[::-1], places[::-1])


@given(_pools())
def test_assignment_converges_and_leaves_no_partition_on_a_draining_worker(pool: tuple[list[Wanted], list[Place]]) -> None:
    partitions, places = pool
    staying = {place.worker_id for place in places if not place.draining}

    for _ in range(MOST_ROUNDS):
        moves = assign(partitions, places)
        if not moves:
            break
        partitions = _after(partitions, moves)

    assert not moves
    if staying:
        assert {partition.worker_id for partition in partitions} <= staying


@given(st.integers(1, 200), st.integers(1, 5))
def test_equal_partitions_are_spread_evenly(partitions: int, workers: int) -> None:
    places = [Place(worker_id=name) for name in _WORKERS[:workers]]

    moves = assign(_alike(partitions), places)

    counts = [list(moves.values()).count(place.worker_id) for place in places]
    assert max(counts) - min(counts) <= 1


def test_a_third_worker_gets_its_share_in_steps_of_a_tenth() -> None:
    partitions = [replace(partition, worker_id=_WORKERS[number % 2]) for number, partition in enumerate(_alike(200, rate=1e6))]
    places = [Place(worker_id=name) for name in _WORKERS[:3]]

    for _round in range(5):
        partitions = _after(partitions, assign(partitions, places))

    found = _loads(partitions)
    assert max(found.values()) <= BALANCED * sum(found.values()) / 3


def test_a_busy_partition_does_not_move_back_and_forth() -> None:
    """A partition with more traffic than all others together: the worker that has it is always the busiest."""
    partitions = [Wanted(key="busy/0", link_id="l", worker_id="w0", bytes_per_s=5e8), *_alike(10, on="w1", rate=1e6)]

    moves = assign(partitions, [Place(worker_id="w0"), Place(worker_id="w1")])

    assert moves == {}


def test_a_small_imbalance_moves_nothing() -> None:
    partitions = _alike(3, on="w0") + [replace(partition, key=f"n/{n}") for n, partition in enumerate(_alike(2, on="w1"))]

    assert assign(partitions, [Place(worker_id="w0"), Place(worker_id="w1")]) == {}


def test_a_large_link_uses_every_worker() -> None:
    partitions = [*_alike(4), Wanted(key="other/0", link_id="other")]

    moves = assign(partitions, [Place(worker_id=name) for name in _WORKERS[:4]])

    assert len({moves[partition.key] for partition in partitions if partition.link_id == "l"}) == 4


def test_the_host_with_the_least_load_is_chosen_among_equal_workers() -> None:
    places = [Place(worker_id="w0", host="a"), Place(worker_id="w1", host="a"), Place(worker_id="w2", host="b")]
    partitions = [*_alike(1, on="w0"), Wanted(key="new/0", link_id="new")]

    assert assign(partitions, places) == {"new/0": "w2"}
