"""The pool of copy workers in Redis: signs of life, and who copies what.

* ``copy-workers``: a hash, one field per worker: the moment by Redis' clock at which it was last heard, and its sealed
  heartbeat;
* ``copy-assignment:<worker id>``: a hash, one field per link: a sealed assignment, which is the link's plan with those
  partitions that this worker copies. A link without partitions for it has an empty plan, so that the loss of a field is told
  from an order to stop;
* ``copy-digest:<worker id>``: a hash, one field per link: what its assignment says, as a digest, so that who writes the same
  again writes nothing; and the field ``stamp``, another one after each writing. A worker asks for the stamp ten times a second.

Everything that is said is sealed with the worker's own key (Fernet: encrypted and authenticated), which travels in its Spark
job and is derived from a secret of the installation (``key_for``). There may be several secrets while they are replaced, the
newest first: a worker is born with the newest one's key and keeps it, and its heartbeat tells which one that was. Who can write
to Redis can make workers silent or deaf. He can neither read credentials nor make a worker do anything: a seal is of one worker
and one link, and an assignment that is older than the one that a worker follows is refused, so that nothing can be said twice.

All of this may be lost at any moment. A worker that is told nothing goes on with what it has; the leases, not the assignments,
decide who writes.
"""

from __future__ import annotations

import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from linkengine.coordination.client import NOW_MS, client_for, redis_answers
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import CopyPlan
from linkengine.domain.plantexts import plan_digest, read_plan, write_plan
from linkengine.domain.signatures import Signer, derive
from linkengine.domain.workers import Heartbeat, WorkerSetup, read_heartbeat, write_heartbeat

KEPT_MS = 24 * 3_600_000  # of a worker that nobody writes to any more
FORGOTTEN_MS = 600_000  # of a worker that is silent: people see for so long that it was there
END = "end"  # instead of a link's name: the worker is not needed any more
_WORKERS, _STAMP = "copy-workers", "stamp"
_log = structlog.get_logger(__name__)

_BEAT = NOW_MS + "redis.call('HSET', KEYS[1], ARGV[1], stamp .. ' ' .. ARGV[2])"
_READ = "return {redis.call('TIME'), redis.call('HGETALL', KEYS[1])}"
# KEYS: assignment, digests. ARGV: for how long to keep them, a new stamp, then per link: name, digest, sealed assignment
_WRITE = """
for i = 3, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[2], 'stamp', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
"""


def key_for(secret: str, worker_id: str) -> str:
    """Derive a worker's key from one of the installation's secrets (a Fernet key, as text)."""
    return urlsafe_b64encode(derive(secret, f"clusterlink copy worker 1: {worker_id}")).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What a worker has been told so far."""

    plans: Mapping[str, CopyPlan]  # by link; without partitions: let go of them
    numbers: Mapping[str, int]  # of the assignments, by link
    refused: Mapping[str, str]  # what cannot be followed, by link, and why
    ends: bool = False  # let go of everything and end


class RedisAssignments:
    """The worker's side of the pool."""

    def __init__(self, setup: WorkerSetup) -> None:
        """Ask and say nothing yet."""
        self._redis, self._id = client_for(setup.redis_url), setup.worker_id
        self._seal = Fernet(setup.key)
        self._stamp: str | None = None
        self._digests: dict[str, str] = {}
        self._known = Assigned(plans={}, numbers={}, refused={})

    def read(self) -> Assigned:
        """Answer what was told so far, the same object while there is no news; raise CoordinationUnavailableError in an
        outage.
        """
        with redis_answers("tell assignments"):
            stamp: Any = self._redis.hget(_digests_of(self._id), _STAMP)
            if stamp is None or stamp == self._stamp:
                return self._known
            digests: Any = self._redis.hgetall(_digests_of(self._id))
            news = [name for name, digest in digests.items() if name != _STAMP and self._digests.get(name) != digest]
            found: Any = self._redis.hmget(_assignment_of(self._id), news) if news else []
        self._stamp = digests.get(_STAMP)
        self._digests = digests
        for name, token in zip(news, found, strict=True):
            if token is not None:
                self._take(name, token)
        return self._known

    def signer_of(self, link_id: str) -> Signer:
        """Return what signs the reports on a link, as it was told last; without keys for a link that was never told."""
        plan = self._known.plans.get(link_id)
        return Signer(()) if plan is None else plan.signer

    def beat(self, heartbeat: Heartbeat) -> None:
        """Show life; raise CoordinationUnavailableError in an outage."""
        token = self._seal.encrypt(write_heartbeat(heartbeat).encode()).decode()
        with redis_answers("take a heartbeat"):
            self._redis.eval(_BEAT, 1, _WORKERS, self._id, token)

    def _take(self, name: str, token: str) -> None:
        said = _opened(self._seal, token)
        if said is None or said.get("worker") != self._id or said.get("link") != name:
            _log.warning("assignment.not_ours", worker=self._id, link=name)
            return
        known = self._known
        if said["number"] <= known.numbers.get(name, 0):
            _log.warning("assignment.stale", worker=self._id, link=name, number=said["number"])
            return
        numbers = {**known.numbers, name: said["number"]}
        if name == END:
            self._known = replace(known, numbers=numbers, ends=True)
            return
        refused = {link: why for link, why in known.refused.items() if link != name}
        try:
            plan = read_plan(said["plan"])
        except LinkEngineError as error:  # of a later version: what is copied goes on as it was told before
            self._known = replace(known, numbers=numbers, refused={**refused, name: error.message})
            return
        self._known = replace(known, plans={**known.plans, name: plan}, numbers=numbers, refused=refused)
        about = {"partitions": len(plan.assignments), "request_id": plan.request_id}
        _log.info("assignment.taken", worker=self._id, link=name, number=said["number"], **about)


def read_workers(url: str, *, secrets: tuple[str, ...]) -> list[Heartbeat]:
    """Answer all workers heard in the last ten minutes, by id, with how long they have been silent."""
    with redis_answers("tell workers"):
        answer: Any = client_for(url).eval(_READ, 1, _WORKERS)
    (seconds, micros), words = answer
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    found, old = [], []
    for worker_id, value in sorted(zip(words[::2], words[1::2], strict=True)):
        beat = _heartbeat(worker_id, value, secrets=secrets, now_ms=now_ms)
        if beat is None or beat.silent_ms > FORGOTTEN_MS:
            old.append(worker_id)
        else:
            found.append(beat)
    if old:
        forget_workers(url, old)
    return found


def write_assignments(
    url: str, link_id: str, plans: Mapping[str, CopyPlan], *, secrets: tuple[str, ...], applied: Mapping[str, int] | None = None
) -> set[str]:
    """Tell workers (by id) their share of a link; answer those to whom it is news.

    ``applied``: the numbers of the assignments that they follow now, as far as they are heard.
    """
    said = {worker: _Said(plan_digest(plan), plan, (applied or {}).get(worker, 0)) for worker, plan in plans.items()}
    return _tell(url, link_id, said, secrets=secrets)


def end_workers(url: str, workers: Iterable[str], *, secrets: tuple[str, ...]) -> None:
    """Order workers to let go of everything and to end."""
    _tell(url, END, {one: _Said(END, None, 0) for one in workers}, secrets=secrets)


def forget_workers(url: str, workers: Iterable[str]) -> None:
    """Remove what is kept of workers that are gone."""
    names = list(workers)
    if not names:
        return
    with redis_answers("forget workers"):
        client_for(url).hdel(_WORKERS, *names)
        client_for(url).delete(*[name for one in names for name in (_assignment_of(one), _digests_of(one))])


@dataclass(frozen=True, slots=True)
class _Said:
    """What is to be said to one worker."""

    digest: str
    plan: CopyPlan | None
    above: int  # what its number has to be

    def is_news(self, known: str | None) -> bool:
        """Tell whether a worker has to be told, that was told something with the digest ``known``; None: nothing."""
        nothing = self.plan is not None and not self.plan.assignments
        return known != self.digest and not (nothing and known is None and not self.above)


def _tell(url: str, name: str, said: Mapping[str, _Said], *, secrets: tuple[str, ...]) -> set[str]:
    if not said:
        return set()
    redis = client_for(url)
    with redis_answers("take assignments"):
        asking = redis.pipeline(transaction=False)
        for worker in said:
            asking.hget(_digests_of(worker), name)
            asking.pexpire(_assignment_of(worker), KEPT_MS)
            asking.pexpire(_digests_of(worker), KEPT_MS)
        known = asking.execute()[::3]
        news = [worker for worker, digest in zip(said, known, strict=True) if said[worker].is_news(digest)]
        for worker in news:
            seal, one = _seal_of(redis, worker, secrets), said[worker]
            number = max(_next_number(redis, seal, worker, name), one.above + 1)
            words = {"worker": worker, "link": name, "number": number, "plan": one.plan and write_plan(one.plan)}
            keys, token = (_assignment_of(worker), _digests_of(worker)), seal.encrypt(json.dumps(words).encode()).decode()
            redis.eval(_WRITE, 2, *keys, KEPT_MS, uuid.uuid4().hex, name, one.digest, token)
    return set(news)


def _seal_of(redis: Any, worker: str, secrets: tuple[str, ...]) -> Fernet:
    """Return the seal that a worker was born with, as its heartbeat tells; that of the newest secret where it was not heard."""
    beat = redis.hget(_WORKERS, worker) or ""
    seals = [Fernet(key_for(secret, worker)) for secret in secrets]
    return next((seal for seal in seals if _opened(seal, beat.partition(" ")[2]) is not None), seals[0])


def _next_number(redis: Any, seal: Fernet, worker: str, name: str) -> int:
    """Answer a number above all that were used, also after a clock was set back: the time, or one more than the last."""
    last = redis.hget(_assignment_of(worker), name)
    said = None if last is None else _opened(seal, last)
    return max(time.time_ns() // 1_000_000, 0 if said is None else int(said.get("number", 0)) + 1)


def _opened(seal: Fernet, token: str) -> dict[str, Any] | None:
    try:
        said: Any = json.loads(seal.decrypt(token.encode()))
    except (InvalidToken, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _heartbeat(worker_id: str, value: str, *, secrets: tuple[str, ...], now_ms: int) -> Heartbeat | None:
    try:
        at, token = value.split(" ", maxsplit=1)
        text = MultiFernet([Fernet(key_for(secret, worker_id)) for secret in secrets]).decrypt(token.encode()).decode()
        beat = read_heartbeat(text, silent_ms=max(0, now_ms - int(at)))
    except (InvalidToken, ValueError):
        return None  # of another secret, or nobody's
    return beat if beat.worker_id == worker_id else None


def _assignment_of(worker_id: str) -> str:
    return f"copy-assignment:{{{worker_id}}}"


def _digests_of(worker_id: str) -> str:
    return f"copy-digest:{{{worker_id}}}"
