"""When the next Fetch may go out and how much it may bring, and when Produce requests do. No I/O; times are monotonic seconds.

For a Fetch four things decide: what the broker said of its quota (KIP-219: a throttled client waits), the link's bandwidth
limit, how many partitions share the requests (each request has a fixed price, so many nearly idle partitions are asked
together a few milliseconds later), and how far away the source is: answers grow as long as they are full, slow to begin and
quick to come over, and shrink where they take long to come over. A stock broker sends 1.6 MB/s per connection over a round
trip of 80 ms, and all partitions of the connection wait for the last byte. From a distant broker the first answer is small: it
is needed for its shape, and then the partition is read ahead over other connections (``read_ahead``).
"""

from __future__ import annotations

from collections.abc import Callable

from linkengine.domain.distances import LONG_MS
from linkengine.domain.plans import CopyTuning

GATHER_S = 0.0001  # per partition: what their next records wait for each other at most
GATHER_MOST_S = 0.0125
GATHER_BYTES = 256 << 10  # a fuller answer means a backlog: no time to lose
FIRST_BYTES = 2 << 20  # of an answer: fits the caches of the processor, so patching and sending it on is cheap
DISTANT_S = LONG_MS / 1000  # round trip from which on a broker is distant
FIRST_FAR_BYTES = 256 << 10  # of the first answer of a distant broker, and the least of a slow one
FAR_S = 0.02  # a full answer that took longer comes over a long way, or from a slow disk: ask for more at a time
QUICK_S = 0.25  # in which a full answer comes over, if more may be asked for at a time
SLOW_S = 0.5  # an answer that needs longer to come over is too large
FULL = 0.7  # of the bytes asked for
PLAUSIBLE_THROTTLE_S = 60.0  # what is longer has to be said twice: a response can be changed on its way
MOST_THROTTLE_S = 600.0  # whatever a broker says; one that goes on throttling says it again
LIMITED_S = 0.25  # of a bandwidth limit in one answer
BURST = 3  # Produce requests that go out together while others are in flight: fewer calls, the broker is woken less often
# of one request that keeps a broker busy by itself until the next ones come: one more goes out together
LARGE_BYTES = 256 << 10


def due_before_burst(unanswered: int, *, most: int, newest_bytes: int) -> int:
    """Answer how many answers to Produce are awaited before anything is sent; to be woken by fewer is of no use.

    ``newest_bytes`` are those of the last request that went out, which is the one that is left to the broker meanwhile.
    """
    burst = BURST + 1 if newest_bytes >= LARGE_BYTES else BURST
    return unanswered - (most - min(burst, most))


class Bandwidth:
    """The link's limit as this worker sees it; ``spend`` asks the shared budget, ``granted`` tells the pause it answered."""

    def __init__(self, bytes_per_s: int = 0, *, ask: Callable[[int], None] | None = None) -> None:
        self.bytes_per_s = bytes_per_s  # 0: no limit
        self.ready_at = 0.0
        self._ask = ask

    def spend(self, size: int, now: float) -> None:
        """Count an answer; nothing more is fetched before the budget allows it."""
        if not self.bytes_per_s:
            return
        if self._ask is None:
            self.granted(size / self.bytes_per_s, now)
            return
        self.ready_at = float("inf")
        self._ask(size)

    def granted(self, pause_s: float, now: float) -> None:
        """Go on after the pause."""
        self.ready_at = now + pause_s


class Throttle:
    """The pauses that a broker wants (KIP-219), of the responses on one kind of request."""

    __slots__ = ("_is_long", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self._is_long = False  # the last one was

    def heard(self, now: float, throttle_ms: int) -> bool:
        """Note a pause; return False if it is implausibly long and the previous one was not, so that it does not count yet."""
        pause_s = min(throttle_ms / 1000, MOST_THROTTLE_S)
        was_long, self._is_long = self._is_long, pause_s > PLAUSIBLE_THROTTLE_S
        if self._is_long and not was_long:
            return False
        if pause_s > 0:
            self.until = now + pause_s
        return True


class Pace:
    """The rhythm of one source broker's requests."""

    __slots__ = ("_bandwidth", "_first", "_gather_until", "_most", "_wanted", "throttle")

    def __init__(self, tuning: CopyTuning, bandwidth: Bandwidth) -> None:
        self._bandwidth = bandwidth
        self._most = tuning.fetch_max_bytes
        self._first = self._wanted = min(FIRST_BYTES, self._most)
        self._gather_until = 0.0
        self.throttle = Throttle()

    @property
    def ready_at(self) -> float:
        """When the next request may go out."""
        return max(self._gather_until, self.throttle.until, self._bandwidth.ready_at)

    @property
    def max_bytes(self) -> int:
        """How much the next answer may hold; a broker sends at least one batch whatever it says."""
        limit = self._bandwidth.bytes_per_s
        return min(self._wanted, max(1, int(limit * LIMITED_S))) if limit else self._wanted

    def asked(self, now: float, *, partitions: int) -> None:
        """A request goes out."""
        self._gather_until = now + min(GATHER_MOST_S, GATHER_S * partitions) if partitions > 1 else 0.0

    def opened(self, *, round_trip_s: float) -> None:
        """Start with a new connection; the size of the last answers of the previous one counts no more."""
        self._first = min(FIRST_BYTES if round_trip_s < DISTANT_S else FIRST_FAR_BYTES, self._most)
        self._wanted = self._first

    def lost(self) -> None:
        """An answer did not come whole: what was asked for may be more than the way to the broker takes in time."""
        self._wanted = self._first

    def answered(self, now: float, *, took_s: float, size: int, came_s: float = 0.0) -> None:
        """Its answer has come; it began to come after ``took_s``, and needed ``came_s`` to come over."""
        self._bandwidth.spend(size, now)
        if size >= min(GATHER_BYTES, self._wanted):
            self._gather_until = 0.0
        if size >= FULL * self._wanted:
            self._wanted = self._next_wanted(took_s=took_s, came_s=came_s)

    def _next_wanted(self, *, took_s: float, came_s: float) -> int:
        """Return how much to ask for after a full answer."""
        if came_s > SLOW_S:
            return max(min(FIRST_FAR_BYTES, self._most), self._wanted // 2)
        if took_s > FAR_S:
            return min(self._most, self._wanted * 2) if came_s <= QUICK_S else self._wanted
        return max(min(FIRST_BYTES, self._most), self._wanted // 2)
