"""The time and size of the next Fetch: quotas, bandwidth limit, many partitions, distant sources; and Produce bursts."""

import pytest

from linkengine.copyjob.pacing import (
    FIRST_BYTES,
    FIRST_FAR_BYTES,
    FULL,
    GATHER_MOST_S,
    LARGE_BYTES,
    Bandwidth,
    Pace,
    Throttle,
    due_before_burst,
)
from linkengine.domain.plans import CopyTuning

TUNING = CopyTuning(fetch_max_bytes=16 << 20)


def pace(*, limit: int = 0) -> Pace:
    return Pace(TUNING, Bandwidth(limit))


def test_single_partition_is_fetched_without_a_pause() -> None:
    pacer = pace()
    pacer.requested(100.0, partitions=1)
    pacer.responded(100.001, took_s=0.001, size=300)

    assert pacer.ready_at <= 100.001


@pytest.mark.parametrize(("partitions", "wait_s"), [(10, 0.001), (1_000, GATHER_MOST_S)])
def test_many_partitions_are_gathered_for_a_few_milliseconds(partitions: int, wait_s: float) -> None:
    pacer = pace()
    pacer.requested(100.0, partitions=partitions)
    pacer.responded(100.0005, took_s=0.0005, size=300)

    assert pacer.ready_at == pytest.approx(100.0 + wait_s)


def test_backlog_is_fetched_without_a_pause() -> None:
    pacer = pace()
    pacer.requested(100.0, partitions=1_000)
    pacer.responded(100.001, took_s=0.001, size=FIRST_BYTES)

    assert pacer.ready_at <= 100.001


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.06, 0.06), (0.5, 0.1)])
def test_broker_of_ten_thousand_partitions_rests_as_long_as_it_worked(took_s: float, pause_s: float) -> None:
    pacer = pace()
    pacer.requested(100.0, partitions=10_000)
    pacer.responded(100.0 + took_s, took_s=took_s, size=FIRST_BYTES // 4)

    assert pacer.ready_at == pytest.approx(100.0 + took_s + pause_s)


def test_backlog_of_ten_thousand_partitions_is_fetched_without_a_pause() -> None:
    pacer = pace()
    pacer.requested(100.0, partitions=10_000)
    pacer.responded(100.06, took_s=0.06, size=FIRST_BYTES)

    assert pacer.ready_at <= 100.06


def test_throttled_client_waits_as_long_as_the_broker_requests() -> None:
    pacer = pace()
    pacer.requested(100.0, partitions=1)
    assert pacer.throttle.update(100.0, 700)
    pacer.responded(100.0, took_s=0.0, size=30)

    assert pacer.ready_at == pytest.approx(100.7)


def test_lost_response_resets_the_requested_size() -> None:
    pacer = pace()
    for _ in range(3):
        pacer.responded(0.0, took_s=0.1, size=pacer.max_bytes)
    assert pacer.max_bytes == 8 * FIRST_BYTES

    pacer.lost()

    assert pacer.max_bytes == FIRST_BYTES


def test_requested_size_grows_while_responses_are_full_and_start_late_and_shrinks_again() -> None:
    pacer = pace()
    sizes = []
    for took_s in (0.1, 0.1, 0.1, 0.1, 0.001, 0.001, 0.001, 0.001):
        pacer.responded(0.0, took_s=took_s, size=pacer.max_bytes)
        sizes.append(pacer.max_bytes >> 20)

    assert sizes == [4, 8, 16, 16, 8, 4, 2, 2]


def test_requested_size_grows_until_a_slow_response_cannot_have_left_a_partition_out() -> None:
    pacer, size = pace(), int(0.6 * FIRST_BYTES)
    pacer.requested(100.0, partitions=10_000)

    pacer.responded(100.1, took_s=0.1, size=size)

    assert size < FULL * pacer.max_bytes
    assert pacer.ready_at <= 100.1  # the response was full, so more may be waiting


def test_bandwidth_limit_makes_responses_small_and_waits_for_the_shared_budget() -> None:
    requested: list[int] = []
    bandwidth = Bandwidth(1_000_000, spend_shared=requested.append)
    pacer = Pace(TUNING, bandwidth)

    pacer.responded(100.0, took_s=0.0, size=250_000)
    waiting = pacer.ready_at
    bandwidth.granted(0.25, 100.01)

    assert pacer.max_bytes == 250_000
    assert (requested, waiting) == ([250_000], float("inf"))
    assert pacer.ready_at == pytest.approx(100.26)


def test_bandwidth_limit_without_a_shared_budget_is_enforced_locally() -> None:
    bandwidth = Bandwidth(1_000_000)

    bandwidth.spend(500_000, 100.0)

    assert bandwidth.ready_at == pytest.approx(100.5)


@pytest.mark.parametrize(
    ("in_flight", "newest_bytes", "awaited"),
    [
        (0, 0, -2),  # nothing is in flight
        (2, 300, 0),  # two small requests keep the broker busy while three are sent
        (5, LARGE_BYTES - 1, 3),
        (2, LARGE_BYTES, 1),  # a single large request keeps it busy
        (5, LARGE_BYTES, 4),
    ],
)
def test_produce_requests_are_sent_in_bursts_that_keep_the_broker_busy(in_flight: int, newest_bytes: int, awaited: int) -> None:
    assert due_before_burst(in_flight, most=5, newest_bytes=newest_bytes) == awaited


def test_single_produce_request_in_flight_waits_for_its_response() -> None:
    assert due_before_burst(0, most=1, newest_bytes=0) == 0
    assert due_before_burst(1, most=1, newest_bytes=LARGE_BYTES) == 1


def test_first_response_of_a_distant_broker_is_small() -> None:
    pacer = pace()

    pacer.opened(round_trip_s=0.08)
    far = pacer.max_bytes
    pacer.opened(round_trip_s=0.001)

    assert (far, pacer.max_bytes) == (FIRST_FAR_BYTES, FIRST_BYTES)


def test_requested_size_stays_if_responses_arrive_slowly_and_shrinks_if_too_slowly() -> None:
    pacer = pace()
    pacer.opened(round_trip_s=0.08)
    sizes = []
    for came_s in (0.1, 0.2, 0.4, 0.9, 0.9, 0.9):
        pacer.responded(0.0, took_s=0.08, came_s=came_s, size=pacer.max_bytes)
        sizes.append(pacer.max_bytes >> 10)

    assert sizes == [512, 1024, 1024, 512, 256, 256]


def test_throttle_time_above_a_minute_counts_when_it_is_repeated() -> None:
    """A throttle time of twelve days in a single response is a flipped bit."""
    throttle = Throttle()

    assert not throttle.update(100.0, 1 << 30)
    assert throttle.until == 0.0
    assert throttle.update(100.0, 90_000)
    assert throttle.until == 190.0
    assert throttle.update(200.0, 1 << 30)
    assert throttle.until == 800.0
    assert throttle.update(900.0, 0)
    assert not throttle.update(900.0, 90_000)
