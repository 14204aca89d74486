"""The clock, when the next Fetch or Produce may be sent, and how many bytes a Fetch may return. No I/O; monotonic seconds.

A Fetch depends on four things:

* the broker's quota: a throttled client waits (KIP-219);
* the link's bandwidth limit;
* the number of partitions: each request has a fixed cost, so many nearly idle partitions are fetched together a few
  milliseconds later. A broker reads every partition of a fetch session for each Fetch, changed or not: 10,000 partitions take
  it 60 ms, and twice to four times as long if none of them has new records when the Fetch arrives, because it then registers
  the Fetch with each of them. After a response for so many partitions, the next Fetch is therefore sent after a pause as long
  as the response took, so that new records are there when it arrives;
* the distance to the source. The requested size doubles while responses are full, start late and arrive quickly; it halves when
  they take long to arrive. A stock broker sends 1.6 MB/s per connection over a round trip of 80 ms, and all partitions of the
  connection wait for the last byte. The first response of a distant broker is small: it shows the size of records and batches,
  with which the partition is then read ahead over other connections (``read_ahead``).

``Backoff`` is the pause before a retry: exponential with jitter, from 100 ms to 5 s, reset after a success.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from linkengine.domain.plans import LONG_MS, CopyTuning
from linkengine.domain.times import pause_s

GATHER_S = 0.0001  # pause per partition after a request, so that records of several partitions share the next request
GATHER_MOST_S = 0.0125
GATHER_BYTES = 256 << 10  # a larger response means a backlog: the next request is sent immediately
WIDE = 2_000  # partitions of a session that a broker needs longer than GATHER_MOST_S to read
SCAN_S = 0.00001  # pause per partition of a wide session after a response, at most
FIRST_BYTES = 2 << 20  # size of a response that fits the processor's caches, so that patching and sending it is cheap
DISTANT_S = LONG_MS / 1000  # a broker with at least this round trip is distant
FIRST_FAR_BYTES = 256 << 10  # of the first response of a distant broker, and the least for a slow broker
FAR_S = 0.02  # a full response that starts later comes from far away, or from a slow disk: request more at a time
QUICK_S = 0.25  # more is requested only if a full response arrives within this time
SLOW_S = 0.5  # a response that takes longer to arrive is too large
FULL = 0.5  # of the requested bytes: the broker may have left out a partition, whose next batch is large
PLAUSIBLE_THROTTLE_S = 60.0  # a longer pause has to be returned twice: a response may be corrupted
MOST_THROTTLE_S = 600.0  # the longest pause that is followed; a broker that still throttles returns another pause
LIMITED_S = 0.25  # a response holds at most this many seconds of the bandwidth limit
BURST = 3  # Produce requests sent together while others are in flight: fewer system calls and wake-ups of the broker
LARGE_BYTES = 256 << 10  # a request of this size keeps a broker busy longer, so another request is sent with it
FIRST_S = 0.1
MOST_S = 5.0


class Clock(Protocol):
    """A source of time that tests can replace."""

    def monotonic(self) -> float:
        """Return seconds that never go back, of the same clock as the lease's deadlines."""

    def now_ms(self) -> int:
        """Return Unix milliseconds."""


class SystemClock:
    """The system clocks. ``now_ms`` follows the monotonic clock, so a later change of the system time does not affect ages."""

    def __init__(self) -> None:
        """Read the system time once."""
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._ahead_ns) // 1_000_000


def due_before_burst(in_flight: int, *, most: int, newest_bytes: int) -> int:
    """Return how many Produce responses have to arrive before the next burst; fewer need not wake the loop.

    ``newest_bytes`` is the size of the last request sent, on which the broker still has to work then.
    """
    burst = BURST + 1 if newest_bytes >= LARGE_BYTES else BURST
    return in_flight - (most - min(burst, most))


class Bandwidth:
    """The link's bandwidth limit in this worker: ``spend`` charges the shared budget, ``granted`` sets the resulting pause."""

    def __init__(self, bytes_per_s: int = 0, *, spend_shared: Callable[[int], None] | None = None) -> None:
        self.bytes_per_s = bytes_per_s  # 0: no limit
        self.ready_at = 0.0
        self._spend_shared = spend_shared

    def spend(self, size: int, now: float) -> None:
        """Count a response of ``size`` bytes; nothing is fetched until the budget allows it."""
        if not self.bytes_per_s:
            return
        if self._spend_shared is None:
            self.granted(size / self.bytes_per_s, now)
            return
        self.ready_at = float("inf")
        self._spend_shared(size)

    def granted(self, pause_s: float, now: float) -> None:
        """Allow the next Fetch after ``pause_s`` seconds."""
        self.ready_at = now + pause_s


class Throttle:
    """The pauses that a broker requests in its responses to a kind of request (KIP-219)."""

    __slots__ = ("_is_long", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self._is_long = False  # the previous pause

    def update(self, now: float, throttle_ms: int) -> bool:
        """Set the pause; return False, without setting it, if it is implausibly long and the previous pause was not."""
        pause_s = min(throttle_ms / 1000, MOST_THROTTLE_S)
        was_long, self._is_long = self._is_long, pause_s > PLAUSIBLE_THROTTLE_S
        if self._is_long and not was_long:
            return False
        if pause_s > 0:
            self.until = now + pause_s
        return True


class Pace:
    """Time and size of the next Fetch to a source broker."""

    __slots__ = ("_bandwidth", "_first", "_gather_until", "_most", "_partitions", "_wanted", "throttle")

    def __init__(self, tuning: CopyTuning, bandwidth: Bandwidth) -> None:
        self._bandwidth = bandwidth
        self._most = tuning.fetch_max_bytes
        self._first = self._wanted = min(FIRST_BYTES, self._most)
        self._gather_until = 0.0
        self._partitions = 0  # of the request in flight
        self.throttle = Throttle()

    @property
    def ready_at(self) -> float:
        """When the next request may be sent."""
        return max(self._gather_until, self.throttle.until, self._bandwidth.ready_at)

    @property
    def max_bytes(self) -> int:
        """The ``max_bytes`` of the next request; a broker returns at least one batch, however large."""
        limit = self._bandwidth.bytes_per_s
        return min(self._wanted, max(1, int(limit * LIMITED_S))) if limit else self._wanted

    def requested(self, now: float, *, partitions: int) -> None:
        """Note that a request is sent now."""
        self._partitions = partitions
        self._gather_until = now + min(GATHER_MOST_S, GATHER_S * partitions) if partitions > 1 else 0.0

    def opened(self, *, round_trip_s: float) -> None:
        """Start with a new connection; response sizes of the previous connection are forgotten."""
        self._first = min(FIRST_BYTES if round_trip_s < DISTANT_S else FIRST_FAR_BYTES, self._most)
        self._wanted = self._first

    def lost(self) -> None:
        """Start with the first size again after a lost response: it may have been too large for the network."""
        self._wanted = self._first

    def responded(self, now: float, *, took_s: float, size: int, came_s: float = 0.0) -> None:
        """Note a response whose first bytes arrived after ``took_s`` and its last bytes ``came_s`` later."""
        self._bandwidth.spend(size, now)
        is_full = size >= FULL * self._wanted
        if self._partitions >= WIDE and not is_full:
            self._gather_until = now + min(took_s, SCAN_S * self._partitions)
        elif is_full or size >= GATHER_BYTES:
            self._gather_until = 0.0
        if is_full:
            self._wanted = self._next_wanted(took_s=took_s, came_s=came_s)

    def _next_wanted(self, *, took_s: float, came_s: float) -> int:
        """Return the bytes to request after a full response."""
        if came_s > SLOW_S:
            return max(min(FIRST_FAR_BYTES, self._most), self._wanted // 2)
        if took_s > FAR_S:
            return min(self._most, self._wanted * 2) if came_s <= QUICK_S else self._wanted
        return max(min(FIRST_BYTES, self._most), self._wanted // 2)


class Backoff:
    """The pauses between retries of an operation."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    def next_pause(self) -> float:
        """Count a failure; return the seconds to wait, half of them random, so that many clients do not retry together."""
        self._failures += 1
        return pause_s(self._failures - 1, first_s=FIRST_S, longest_s=MOST_S, spread=(0.5, 1.0))

    @property
    def rested(self) -> bool:
        """Whether nothing has failed since the last success."""
        return self._failures == 0

    def reset(self) -> None:
        """Start from the shortest pause again."""
        self._failures = 0
