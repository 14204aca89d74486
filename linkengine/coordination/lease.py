"""The lease of a mirror partition: one owner at a time, each with a higher generation than all before it.

Two keys per partition, touched only by Lua scripts (``leasescripts.py``), which Redis runs one at a time:

* ``lease:{<key>}``: the owner's token, expires by itself;
* ``generation:{<key>}``: hash of ``generation`` (counter), ``holder`` (token of the last owner, empty once it released),
  ``clean`` (what the last acquire answered), ``seen`` (what the last owner that released left to the next one, who gets it
  with a clean grant only), ``rests`` (when that was, by Redis' clock), ``left`` (the same of the last owner alone, whatever
  others did before) and ``armed`` (when, by Redis' clock, an owner that may have sent markers was last heard, 0 after a clean
  release). It never expires, so the counter outlives every lease; it goes with the mirror (``forget_leases``), a day later: a
  copier that comes late would make it anew.

A token is unique per RedisLease object. Races, each thought through:

* *Two acquire at once.* The scripts run one after the other; the second sees the first one's token and gets nothing.
* *An owner is killed.* Its token expires; the next acquire finds ``holder`` not empty and answers ``clean=False``: requests of
  the dead owner may still be on their way to the broker.
* *A short owner comes after one that was killed.* Data of the dead one is conditional, whenever it arrives; its markers are
  not. So an owner notes that it is ``armed`` before its first marker, and is refused once somebody else has had the lease. Who
  comes after a dead owner that was armed hands on ``clean`` only if a marker of its own has shut the old ones out; otherwise it
  gives the lease back at once, but as it got it. After one that wrote only data ``clean`` is the truth, and so it is
  ``UNDERWAY_MS`` after the last word of one that was armed: a mirror without new gaps must not stay unclean for ever.
* *The reply to acquire is lost.* The repeated call finds its own token and answers a new generation and the stored ``clean``,
  since nothing was written under the lost grant. If a grant was handed out before and not given back, ``clean`` is False.
* *An owner stalls* (garbage collection, SIGSTOP). ``deadline`` counts from before the request was sent, Redis from when it
  was served, so the owner's deadline passes first, by ``MARGIN`` more. It looks at the deadline before it writes. What it had
  sent already is fenced by the successor: its first marker raises the producer epoch and carries the higher generation.
* *Renew comes after the expiry.* If nobody took the partition since (``generation`` and ``holder`` unchanged) the lease is
  set again: between the deadline and now the owner did not write, and nobody else did.
* *Redis lost its data* (flushed, restarted without a log, a replica that had not heard of us). An owner within its deadline
  sets lease and counter again from its own generation. If another one was quicker, the counter tells. At or below ours: it
  started from less than we know while we rightfully hold the partition, so we take it back. Above ours: it knows about us
  (``raise_generation``) and we lost. An owner beyond its deadline never sets lost data again: somebody else may have had
  the partition in between. Whether it is armed it sets as well; only where it died before that, the next owner but one may be
  told ``clean`` too early.
* *A newcomer after lost data* starts at generation 1 and reads a higher epoch from the broker. It calls ``raise_generation``;
  having had to do so means that the predecessor is unknown and had sent markers, so its grant counts as not clean whatever it
  says, and the partition as one whose owner died armed.
* *The clock of the Redis host jumps.* Forward: a lease ends early and two owners overlap. Appends are conditional, and the
  newcomer, whose grant is not clean, sends no marker before the first one's deadline is over. Back: a lease of a dead owner
  would last for as long as the jump, so whoever asks for it cuts it down to one length.

Deadlines are this process's monotonic clock, in seconds; no wall clock is compared between machines.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

from linkengine.coordination.client import client_for, redis_answers
from linkengine.coordination.leasescripts import ACQUIRE, ARM, FORGET, RAISE, RELEASE, RENEW
from linkengine.domain.leases import Grant

MARGIN = 0.1  # of the ttl: clocks that run at different speeds, and the time between looking at the deadline and sending
LATE_MS = 24 * 3_600_000  # a slice lasts a minute, but Spark may begin its tasks late
FORGOTTEN_AT_ONCE = 1_000  # names; Redis does nothing else meanwhile
UNDERWAY_MS = 30 * 60_000  # twice the time after which TCP gives up a segment that nobody takes (RFC 1122; Linux: 15 min)


class RedisLease:
    """Leases of one owner (one copy task, one stop), usable by several threads. In an outage calls raise
    CoordinationUnavailableError; the deadlines of the grants then simply come closer.
    """

    def __init__(self, url: str, *, ttl_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Take no lease yet; ``clock`` answers monotonic seconds."""
        self._redis = client_for(url)
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._identity = uuid.uuid4().hex
        self._unreleased: set[str] = set()  # grants handed out and not given back, lost ones included
        self._tokens: dict[str, str] = {}  # of grants held, as far as we know
        self._generations: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._armed: dict[str, int] = {}  # 1: an earlier owner, 2: we
        self._lock = Lock()

    def acquire(self, key: str, owner: str) -> Grant | None:
        """Take the partition unless somebody has it; never waits for it."""
        return next(iter(self.acquire_all([key], owner)), None)

    def acquire_all(self, keys: Sequence[str], owner: str) -> list[Grant]:
        """Take those partitions that nobody has, in one round trip; never waits for any."""
        asked_at, token = self._clock(), f"{owner}#{self._identity}"
        names = [name for key in keys for name in _names(key)]
        with redis_answers("answer acquire"):
            answers: Any = self._redis.eval(ACQUIRE, len(names), *names, token, self._ttl_ms, UNDERWAY_MS)
        deadline = self._deadline_from(asked_at)
        taken = [(key, answer) for key, answer in zip(keys, answers, strict=True) if answer[0]]
        with self._lock:
            grants = [
                Grant(
                    key=key,
                    generation=generation,
                    clean=bool(clean) and key not in self._unreleased,
                    valid_until=deadline,
                    armed=bool(armed),
                    seen=_seen(seen),
                    left=_seen(left),
                    rested_ms=rested_ms,
                )
                for key, (generation, seen, clean, armed, left, rested_ms) in taken
            ]
            for grant in grants:
                self._take(grant, token)
        return grants

    def renew(self, grants: Iterable[Grant]) -> set[str]:
        """Prolong all in one round trip; answer the keys still held. One not in the answer is lost for good."""
        asked_at = self._clock()
        by_token = self._by_token(grants)
        held = {key for token, keys in by_token.items() for key in self._renew(token, keys, asked_at=asked_at)}
        with self._lock:
            self._deadlines |= dict.fromkeys(held, self._deadline_from(asked_at))
            for key in {key for keys in by_token.values() for key in keys} - held:
                self._forget(key)
        return held

    def arm(self, grants: Iterable[Grant]) -> set[str]:
        """Note that markers may be on their way from now on, in one round trip; answer the keys for which it is noted."""
        armed: set[str] = set()
        for token, keys in self._by_token(grants).items():
            names = [_names(key)[1] for key in keys]
            with redis_answers("answer arm"):
                answer: Any = self._redis.eval(ARM, len(names), *names, token)
            armed |= {key for key, noted in zip(keys, answer, strict=True) if noted}
        with self._lock:
            self._armed |= dict.fromkeys(armed & self._tokens.keys(), 2)
        return armed

    def release(self, grant: Grant, *, seen: tuple[int, int] | None = None, clean: bool = True) -> None:
        """Give the partition back, with nothing of ours in flight.

        ``clean``: nor of an earlier owner, as the next one is told. Otherwise it is told what we were; it waits for neither.
        """
        self._release([grant], left="" if seen is None else f"{seen[0]} {seen[1]}", clean=clean)

    def release_all(self, grants: Iterable[Grant]) -> None:
        """Give all back as ``release`` does, cleanly and with nothing to see, in one round trip."""
        self._release(grants, left="", clean=True)

    def raise_generation(self, key: str, at_least: int) -> int:
        """Lift the counter, for an owner whose generation the broker would refuse; answer the generation to use from now on.

        Where it is lifted the lease has forgotten an owner whose markers may be on their way: noted as if that one had died.
        """
        return self.raise_generations([key], at_least)[key]

    def raise_generations(self, keys: Sequence[str], at_least: int) -> dict[str, int]:
        """Do what ``raise_generation`` does for many partitions, in one round trip."""
        names = [_names(key)[1] for key in keys]
        with redis_answers("answer raise_generation"):
            answer: Any = self._redis.eval(RAISE, len(names), *names, at_least)
        raised = {key: int(generation) for key, generation in zip(keys, answer, strict=True)}
        with self._lock:
            self._generations |= {key: generation for key, generation in raised.items() if key in self._tokens}
        return raised

    def deadline(self, grant: Grant) -> float:
        """Answer until when (monotonic seconds) the owner may write; in the past once the lease was lost or released."""
        with self._lock:
            return self._deadlines.get(grant.key, float("-inf"))

    def _take(self, grant: Grant, token: str) -> None:
        """Note one grant; the lock is held."""
        key = grant.key
        self._unreleased.add(key)
        self._tokens[key], self._generations[key], self._deadlines[key] = token, grant.generation, grant.valid_until
        self._armed[key] = int(grant.armed)

    def _by_token(self, grants: Iterable[Grant]) -> dict[str, list[str]]:
        """Sort the keys of grants that we hold, as far as we know."""
        found: dict[str, list[str]] = {}
        with self._lock:
            for grant in grants:
                if grant.key in self._tokens:
                    found.setdefault(self._tokens[grant.key], []).append(grant.key)
        return found

    def _release(self, grants: Iterable[Grant], *, left: str, clean: bool) -> None:
        for token, keys in self._by_token(grants).items():
            names = [name for key in keys for name in _names(key)]
            with redis_answers("answer release"):
                self._redis.eval(RELEASE, len(names), *names, token, left, int(clean))
            with self._lock:
                for key in keys:
                    self._forget(key)
                    self._unreleased.discard(key)

    def _renew(self, token: str, keys: Sequence[str], *, asked_at: float) -> set[str]:
        with self._lock:
            states = [(self._generations[key], int(asked_at < self._deadlines[key]), self._armed[key]) for key in keys]
        names = [name for key in keys for name in _names(key)]
        with redis_answers("answer renew"):
            numbers = [number for state in states for number in state]
            answer: Any = self._redis.eval(RENEW, len(names), *names, token, self._ttl_ms, *numbers)
        return {key for key, held in zip(keys, answer, strict=True) if held}

    def _deadline_from(self, asked_at: float) -> float:
        return asked_at + self._ttl_ms / 1000 * (1 - MARGIN)

    def _forget(self, key: str) -> None:
        for table in (self._tokens, self._generations, self._deadlines, self._armed):
            table.pop(key, None)


def forget_leases(url: str, keys: Iterable[str]) -> None:
    """Remove what is kept of partitions that nobody will ever write again: no mirror gets the name of one that is gone.

    An empty record stays for a day. A copier that wants the lease that late writes into it, and its traces go with it.
    """
    names = [name for key in keys for name in _names(key)]
    with redis_answers("forget leases"):
        for begin in range(0, len(names), FORGOTTEN_AT_ONCE):
            some = names[begin : begin + FORGOTTEN_AT_ONCE]
            client_for(url).eval(FORGET, len(some), *some, LATE_MS)


def _seen(text: str | bytes) -> tuple[int, int] | None:
    """Read what a release left: epoch and end."""
    words = text.split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else None


def _names(key: str) -> tuple[str, str]:
    return f"lease:{{{key}}}", f"generation:{{{key}}}"  # braces: one slot of a Redis Cluster
