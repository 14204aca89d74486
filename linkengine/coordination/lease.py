"""The lease of a mirror partition: one owner at a time, each with a higher generation than all before it.

Each partition has two keys, written only by Lua scripts, which Redis runs one at a time:

* ``lease:{<key>}``: the owner's token. It expires.
* ``generation:{<key>}``: a hash, called the record. It does not expire, so that the counter outlives every lease. After the
  mirror is deleted it is emptied and expires a day later (``forget_leases``), with the fields that a late copy worker adds.

| field            | value                                                                                          |
|------------------|------------------------------------------------------------------------------------------------|
| ``generation``   | counter, incremented by each acquire                                                           |
| ``holder``       | token of the last owner; empty after a clean release                                           |
| ``clean``        | 1 if the last acquire found a clean release or no earlier owner                                |
| ``seen``         | leader epoch and end passed to the last clean release; only a clean grant returns them         |
| ``released_at``  | when that release was, by Redis's clock                                                        |
| ``last_release`` | leader epoch and end passed to the last release, clean or not; each acquire empties it         |
| ``markers_at``   | when, by Redis's clock, an owner that may have sent markers last announced them or renewed; 0  |
|                  | after a clean release                                                                          |

The leader epoch is that of the source, the end that of the mirror (``domain.workers.Grant``). A token is unique per RedisLease
object. Races and failures:

* *Two owners acquire at the same time.* The scripts run one after the other; the second finds the token of the first and gets
  no grant.
* *An owner is killed.* Its token expires. The next acquire finds ``holder`` not empty and returns ``clean=False``: requests of
  the crashed owner may still be in flight to the broker.
* *A short-lived owner follows a killed owner.* Data of the crashed owner is conditional, whenever it arrives; its markers are
  not. So an owner announces its markers (``announce_markers``) before the first; that is refused once another owner has had the
  lease. The successor of a crashed owner that announced markers makes a clean release only if a marker of its own has fenced
  the earlier owners. Otherwise it releases at once, but leaves the record as it found it. A clean release is also correct if
  the crashed owner had announced no markers, or ``IN_FLIGHT_MS`` after its last renewal: a mirror without new gaps must become
  clean again.
* *The reply to acquire is lost.* The repeated call finds its own token and returns a new generation and the stored ``clean``,
  since nothing was written under the lost grant. If a grant was handed out before and not released, ``clean`` is False.
* *An owner stalls* (garbage collection, SIGSTOP). ``deadline`` counts from before the request was sent, Redis from when it
  was served, so the owner's deadline passes first, by ``MARGIN`` more. The owner checks the deadline before it writes. Requests
  that it had sent already are fenced by the successor, whose first marker raises the producer epoch and carries the higher
  generation.
* *Renew arrives after the expiry.* If no other owner took the partition since (``generation`` and ``holder`` unchanged) the
  lease is set again: between the deadline and now neither this owner nor another wrote.
* *Redis lost its data* (flushed, restarted without a log, failover to a replica that lagged). An owner within its deadline
  restores lease and counter from its own generation. If another owner was quicker, the counter decides. At or below the own
  generation: the other owner started without the history while this owner rightfully holds the partition, so it takes the lease
  back. Above: the other owner found this owner's epoch on the broker (``raise_generation``), and the lease is lost. An owner
  beyond its deadline never restores lost data: another owner may have had the partition in between. The owner restores
  ``markers_at`` as well; only if it crashes before that, the owner after the next may get ``clean`` too early.
* *A new owner after lost data* starts at generation 1 and finds a higher epoch on the broker. It calls ``raise_generation``.
  The higher epoch proves that an unknown previous owner sent markers. The grant therefore counts as unclean, and the record is
  set as after a crashed owner that announced markers.
* *The clock of the Redis host jumps.* Forward: a lease ends early and two owners overlap. Appends are conditional, and the new
  owner, whose grant is not clean, sends no marker before the deadline of the first has passed. Back: a lease of a crashed owner
  would last for as long as the jump, so every acquire reduces its remaining time to one ttl.

Deadlines are this process's monotonic clock, in seconds; no wall clock is compared between machines.

Each script handles all its partitions in one atomic step. KEYS are, per partition, the lease and the record (fields: above);
those of ANNOUNCE and RAISE the record alone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from threading import Lock
from typing import Any

from linkengine.coordination.client import NOW_MS, client_for, translate_redis_errors
from linkengine.domain.workers import Grant

MARGIN = 0.1  # of the ttl: clocks that run at different speeds, and the time between checking the deadline and sending
LATE_MS = 24 * 3_600_000  # how late a copy worker may still request the lease: Spark may start its task with a delay
FORGOTTEN_AT_ONCE = 1_000  # keys per script, which blocks Redis while it runs
IN_FLIGHT_MS = 30 * 60_000  # twice the time after which TCP gives up an unacknowledged segment (RFC 1122; Linux: 15 min)
# ARGV: token, ttl, for how long a marker may be in flight
ACQUIRE = (
    NOW_MS
    + """
local replies = {}
for i = 1, #KEYS / 2 do
  local lease, record = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, clean = redis.call('GET', lease), '0'
  if owner and owner ~= ARGV[1] then
    if redis.call('PTTL', lease) > tonumber(ARGV[2]) then redis.call('PEXPIRE', lease, ARGV[2]) end
    replies[i] = {0}
  else
    local last = redis.call('HMGET', record, 'holder', 'clean', 'seen', 'markers_at', 'last_release', 'released_at')
    if owner then clean = last[2] or '0'
    elseif not last[1] or last[1] == '' then clean = '1' end
    local seen, announced = clean == '1' and last[3] or '', tonumber(last[4] or '0')
    local in_flight = announced > 0 and now - announced < tonumber(ARGV[3]) and 1 or 0
    local rested = last[6] and math.max(now - last[6], 0) or 0
    replies[i] = {redis.call('HINCRBY', record, 'generation', 1), seen, tonumber(clean), in_flight, last[5] or '', rested}
    redis.call('HSET', record, 'holder', ARGV[1], 'clean', clean, 'last_release', '')
    redis.call('SET', lease, ARGV[1], 'PX', ARGV[2])
  end
end
return replies
"""
)
# ARGV: token, ttl, then per partition: own generation, whether the deadline has not passed, an AnnouncedBy
RENEW = (
    NOW_MS
    + """
local held = {}
for i = 1, #KEYS / 2 do
  local lease, record = KEYS[2 * i - 1], KEYS[2 * i]
  local own, in_time, announced = tonumber(ARGV[3 * i]), ARGV[3 * i + 1] == '1', ARGV[3 * i + 2]
  local owner = redis.call('GET', lease)
  local known = redis.call('HMGET', record, 'generation', 'holder')
  local generation = tonumber(known[1] or '0')
  local mine = owner == ARGV[1]
  local untaken = not owner and known[2] == ARGV[1] and generation <= own
  local data_lost = in_time and generation <= own
  if mine or untaken or data_lost then
    if not mine and not untaken and generation == own then generation = own + 1 end  -- above the other owner's
    if mine then redis.call('PEXPIRE', lease, ARGV[2])  -- a fifth faster than SET, for every renewal
    else redis.call('SET', lease, ARGV[1], 'PX', ARGV[2]) end
    local highest = math.max(generation, own)
    if known[2] ~= ARGV[1] or tonumber(known[1] or '0') ~= highest then  -- most renewals would write what is there
      redis.call('HSET', record, 'generation', highest, 'holder', ARGV[1])
    end
    if announced == '2' then redis.call('HSET', record, 'markers_at', stamp) end
    if announced == '1' then redis.call('HSETNX', record, 'markers_at', stamp) end
    held[i] = 1
  else
    held[i] = 0
  end
end
return held
"""
)
# ARGV: token, leader epoch and end, whether the release is clean
RELEASE = (
    NOW_MS
    + """
for i = 1, #KEYS / 2 do
  local lease, record = KEYS[2 * i - 1], KEYS[2 * i]
  local owner = redis.call('GET', lease)
  if (not owner or owner == ARGV[1]) and redis.call('HGET', record, 'holder') == ARGV[1] then
    if ARGV[3] == '1' then  -- otherwise as if the lease had expired
      redis.call('HSET', record, 'holder', '', 'seen', ARGV[2], 'markers_at', '0', 'released_at', stamp)
    end
    redis.call('HSET', record, 'last_release', ARGV[2])
    redis.call('DEL', lease)
  end
end
return #KEYS
"""
)
# ARGV: how late a copy worker may still request the lease
FORGET = """
for i = 1, #KEYS / 2 do
  redis.call('DEL', KEYS[2 * i - 1], KEYS[2 * i])
  redis.call('HSET', KEYS[2 * i], 'generation', 0)  -- fields that are added later expire with the key
  redis.call('PEXPIRE', KEYS[2 * i], ARGV[1])
end
"""
ANNOUNCE = (
    NOW_MS
    + """
local announced = {}
for i = 1, #KEYS do
  announced[i] = redis.call('HGET', KEYS[i], 'holder') == ARGV[1] and 1 or 0
  if announced[i] == 1 then redis.call('HSET', KEYS[i], 'markers_at', stamp) end
end
return announced
"""
)
RAISE = (
    NOW_MS
    + """
local raised, least = {}, tonumber(ARGV[1])
for i = 1, #KEYS do
  local known = tonumber(redis.call('HGET', KEYS[i], 'generation') or '0')
  if known < least then redis.call('HSET', KEYS[i], 'generation', ARGV[1], 'markers_at', stamp) end
  raised[i] = math.max(known, least)
end
return raised
"""
)


class AnnouncedBy(IntEnum):
    """Which owner has announced markers that may still be in flight."""

    NO_OWNER = 0
    EARLIER_OWNER = 1
    THIS_OWNER = 2


class RedisLease:
    """Leases of an owner (a copy worker, a stop), usable by several threads. In an outage calls raise
    CoordinationUnavailableError; the deadlines of the grants are then not extended.
    """

    def __init__(self, url: str, *, ttl_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Create it without a lease; ``clock`` returns monotonic seconds."""
        self._redis = client_for(url)
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._identity = uuid.uuid4().hex
        self._unreleased: set[str] = set()  # grants handed out and not released, lost grants included
        self._tokens: dict[str, str] = {}  # of grants that this process holds; Redis decides
        self._generations: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._announced_by: dict[str, AnnouncedBy] = {}
        self._lock = Lock()

    def acquire_all(self, keys: Sequence[str], owner: str) -> list[Grant]:
        """Acquire those partitions that have no owner, in one round trip; never waits for any."""
        sent_at, token = self._clock(), f"{owner}#{self._identity}"
        names = [name for key in keys for name in _names(key)]
        with translate_redis_errors("execute acquire"):
            replies: Any = self._redis.eval(ACQUIRE, len(names), *names, token, self._ttl_ms, IN_FLIGHT_MS)
        deadline = self._deadline_from(sent_at)
        taken = [(key, reply) for key, reply in zip(keys, replies, strict=True) if reply[0]]
        with self._lock:
            grants = [
                Grant(
                    key=key,
                    generation=generation,
                    clean=bool(clean) and key not in self._unreleased,
                    valid_until=deadline,
                    markers_announced=bool(markers_announced),
                    seen=_seen(seen),
                    last_release=_seen(last_release),
                    rested_ms=rested_ms,
                )
                for key, (generation, seen, clean, markers_announced, last_release, rested_ms) in taken
            ]
            for grant in grants:
                self._take(grant, token)
        return grants

    def renew(self, grants: Iterable[Grant]) -> set[str]:
        """Extend all leases in one round trip; return the keys still held. A key that is not returned is lost permanently."""
        sent_at = self._clock()
        by_token = self._by_token(grants)
        held = {key for token, keys in by_token.items() for key in self._renew(token, keys, sent_at=sent_at)}
        with self._lock:
            self._deadlines |= dict.fromkeys(held, self._deadline_from(sent_at))
            for key in {key for keys in by_token.values() for key in keys} - held:
                self._forget(key)
        return held

    def announce_markers(self, grants: Iterable[Grant]) -> set[str]:
        """Record, in one round trip, that markers may be in flight from now on; return the keys for which it is recorded."""
        markers_announced: set[str] = set()
        for token, keys in self._by_token(grants).items():
            names = [_names(key)[1] for key in keys]
            with translate_redis_errors("announce markers"):
                reply: Any = self._redis.eval(ANNOUNCE, len(names), *names, token)
            markers_announced |= {key for key, noted in zip(keys, reply, strict=True) if noted}
        with self._lock:
            self._announced_by |= dict.fromkeys(markers_announced & self._tokens.keys(), AnnouncedBy.THIS_OWNER)
        return markers_announced

    def release(self, grant: Grant, *, seen: tuple[int, int] | None = None, clean: bool = True) -> None:
        """Release the partition; the caller has no request in flight.

        With ``clean``, no earlier owner has a request in flight either, and the next owner gets a clean grant. Otherwise the
        record stays as if the lease had expired; the next owner need not wait for the expiry.
        """
        self._release([grant], seen="" if seen is None else f"{seen[0]} {seen[1]}", clean=clean)

    def release_all(self, grants: Iterable[Grant]) -> None:
        """Release all grants in one round trip, cleanly and without ``seen``."""
        self._release(grants, seen="", clean=True)

    def raise_generation(self, key: str, at_least: int) -> int:
        """Raise the counter, for an owner whose generation the broker would refuse; return the generation to use from now on.

        If it has to be raised, Redis has lost an owner whose markers may be in flight: recorded as if that owner had crashed.
        """
        return self.raise_generations([key], at_least)[key]

    def raise_generations(self, keys: Sequence[str], at_least: int) -> dict[str, int]:
        """Raise the counters of many partitions as ``raise_generation`` does, in one round trip."""
        names = [_names(key)[1] for key in keys]
        with translate_redis_errors("execute raise_generation"):
            reply: Any = self._redis.eval(RAISE, len(names), *names, at_least)
        raised = {key: int(generation) for key, generation in zip(keys, reply, strict=True)}
        with self._lock:
            self._generations |= {key: generation for key, generation in raised.items() if key in self._tokens}
        return raised

    def deadline(self, grant: Grant) -> float:
        """Return until when (monotonic seconds) the owner may write; -inf once the lease was lost or released."""
        with self._lock:
            return self._deadlines.get(grant.key, float("-inf"))

    def _take(self, grant: Grant, token: str) -> None:
        """Store a grant. The caller holds the lock."""
        key = grant.key
        self._unreleased.add(key)
        self._tokens[key], self._generations[key], self._deadlines[key] = token, grant.generation, grant.valid_until
        self._announced_by[key] = AnnouncedBy.EARLIER_OWNER if grant.markers_announced else AnnouncedBy.NO_OWNER

    def _by_token(self, grants: Iterable[Grant]) -> dict[str, list[str]]:
        """Return, by token, the keys of the grants that this process holds according to its own record."""
        found: dict[str, list[str]] = {}
        with self._lock:
            for grant in grants:
                if grant.key in self._tokens:
                    found.setdefault(self._tokens[grant.key], []).append(grant.key)
        return found

    def _release(self, grants: Iterable[Grant], *, seen: str, clean: bool) -> None:
        for token, keys in self._by_token(grants).items():
            names = [name for key in keys for name in _names(key)]
            with translate_redis_errors("execute release"):
                self._redis.eval(RELEASE, len(names), *names, token, seen, int(clean))
            with self._lock:
                for key in keys:
                    self._forget(key)
                    self._unreleased.discard(key)

    def _renew(self, token: str, keys: Sequence[str], *, sent_at: float) -> set[str]:
        with self._lock:
            states = [
                (self._generations[key], int(sent_at < self._deadlines[key]), int(self._announced_by[key])) for key in keys
            ]
        names = [name for key in keys for name in _names(key)]
        with translate_redis_errors("execute renew"):
            numbers = [number for state in states for number in state]
            reply: Any = self._redis.eval(RENEW, len(names), *names, token, self._ttl_ms, *numbers)
        return {key for key, held in zip(keys, reply, strict=True) if held}

    def _deadline_from(self, sent_at: float) -> float:
        return sent_at + self._ttl_ms / 1000 * (1 - MARGIN)

    def _forget(self, key: str) -> None:
        for table in (self._tokens, self._generations, self._deadlines, self._announced_by):
            table.pop(key, None)


def forget_leases(url: str, keys: Iterable[str]) -> None:
    """Remove the leases of partitions of a deleted mirror; ids of mirrors are not used again.

    An empty record stays for a day. Fields that a late copy worker adds, because it acquires the lease, expire with it.
    """
    names = [name for key in keys for name in _names(key)]
    with translate_redis_errors("forget leases"):
        for begin in range(0, len(names), FORGOTTEN_AT_ONCE):
            chunk = names[begin : begin + FORGOTTEN_AT_ONCE]
            client_for(url).eval(FORGET, len(chunk), *chunk, LATE_MS)


def _seen(text: str | bytes) -> tuple[int, int] | None:
    """Parse the leader epoch and the end of a release; None if it had none."""
    words = text.split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else None


def _names(key: str) -> tuple[str, str]:
    return f"lease:{{{key}}}", f"generation:{{{key}}}"  # braces: one slot of a Redis Cluster
