"""The pool of copy workers in Redis: heartbeats of the workers, and assignments to them.

* ``copy-workers``: a hash, one field per worker: the time of its last heartbeat by Redis's clock, and the sealed heartbeat;
* ``copy-assignment:<worker id>``: a hash, one field per link: a sealed assignment, which is the link's plan with the partitions
  that this worker copies. If it is to copy none, the plan is empty, which is different from a lost field: only an empty plan
  makes the worker stop;
* ``copy-digest:<worker id>``: a hash, one field per link: a digest of its assignment, so that an unchanged assignment is not
  written again; and the field ``stamp``, which changes with each write. A worker reads the stamp ten times a second.

Messages are sealed with the worker's own key (Fernet: encrypted and authenticated), which travels in its Spark job and is
derived from a secret of the installation (``key_for``). While secrets are rotated there are several, newest first: a worker
starts with the newest secret's key and keeps it, and its heartbeat shows which key that is. An attacker with write access to
Redis can suppress heartbeats and assignments, but can neither read credentials nor make a worker do anything: a seal is valid
for one worker and one link, and an assignment older than the current assignment is refused, so that none can be replayed.

All of this may be lost at any time. A worker without new assignments continues with those it has; the leases, not the
assignments, decide which worker writes.
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

from linkengine.coordination.client import NOW_MS, client_for, translate_redis_errors
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import CopyPlan, plan_digest, read_plan, write_plan
from linkengine.domain.signatures import Signer, derive
from linkengine.domain.workers import Heartbeat, WorkerAssignments, WorkerSetup, read_heartbeat, write_heartbeat

KEPT_MS = 24 * 3_600_000  # expiry of a worker's keys after the last write
FORGOTTEN_MS = 600_000  # silence after which a worker is removed; until then it is shown
END = "end"  # instead of a link's name: the worker is to end
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
    """Return a worker's key, derived from a secret of the installation (a Fernet key, as text)."""
    return urlsafe_b64encode(derive(secret, f"clusterlink copy worker 1: {worker_id}")).decode()


class RedisAssignments:
    """The worker's side of the pool."""

    def __init__(self, setup: WorkerSetup) -> None:
        """Prepare the connection; nothing is read or written yet."""
        self._redis, self._id = client_for(setup.redis_url), setup.worker_id
        self._seal = Fernet(setup.key)
        self._stamp: str | None = None
        self._digests: dict[str, str] = {}
        self._known = WorkerAssignments(plans={}, numbers={}, refused={})

    def read(self) -> WorkerAssignments:
        """Return the current assignments, the same object while they do not change.

        Raises CoordinationUnavailableError in an outage.
        """
        with translate_redis_errors("return assignments"):
            stamp: Any = self._redis.hget(_digests_of(self._id), _STAMP)
            if stamp is None or stamp == self._stamp:
                return self._known
            digests: Any = self._redis.hgetall(_digests_of(self._id))
            changed = [name for name, digest in digests.items() if name != _STAMP and self._digests.get(name) != digest]
            found: Any = self._redis.hmget(_assignment_of(self._id), changed) if changed else []
        # Redis may lose its data between the two requests. An assignment not found may come again with the same digest.
        missing = {name for name, token in zip(changed, found, strict=True) if token is None}
        self._stamp = None if missing else digests.get(_STAMP)
        self._digests = {name: digest for name, digest in digests.items() if name not in missing}
        for name, token in zip(changed, found, strict=True):
            if token is not None:
                self._take(name, token)
        return self._known

    def signer_of(self, link_id: str) -> Signer:
        """Return the signer for reports on a link, from its latest assignment; without keys if there is none."""
        plan = self._known.plans.get(link_id)
        return Signer(()) if plan is None else plan.signer

    def beat(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat; raise CoordinationUnavailableError in an outage."""
        token = self._seal.encrypt(write_heartbeat(heartbeat).encode()).decode()
        with translate_redis_errors("store a heartbeat"):
            self._redis.eval(_BEAT, 1, _WORKERS, self._id, token)

    def _take(self, name: str, token: str) -> None:
        message = _opened(self._seal, token)
        if message is None or message.get("worker") != self._id or message.get("link") != name:
            _log.warning("assignment.of_another_worker", worker=self._id, link=name)
            return
        known = self._known
        if message["number"] <= known.numbers.get(name, 0):
            _log.warning("assignment.stale", worker=self._id, link=name, number=message["number"])
            return
        numbers = {**known.numbers, name: message["number"]}
        if name == END:
            self._known = replace(known, numbers=numbers, ends=True)
            return
        refused = {link: why for link, why in known.refused.items() if link != name}
        try:
            plan = read_plan(message["plan"])
        except LinkEngineError as error:  # written by a later version: copying continues with the previous assignment
            self._known = replace(known, numbers=numbers, refused={**refused, name: error.message})
            return
        self._known = replace(known, plans={**known.plans, name: plan}, numbers=numbers, refused=refused)
        about = {"partitions": len(plan.assignments), "request_id": plan.request_id}
        _log.info("assignment.taken", worker=self._id, link=name, number=message["number"], **about)


def read_workers(url: str, *, secrets: tuple[str, ...]) -> list[Heartbeat]:
    """Return all workers with a heartbeat in the last ten minutes, by id, with the time since then."""
    with translate_redis_errors("return workers"):
        reply: Any = client_for(url).eval(_READ, 1, _WORKERS)
    (seconds, micros), words = reply
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
    """Write workers' assignments of a link, by worker id; return the workers whose assignment changed.

    ``applied``: the numbers of the assignments that the workers follow now, as far as their heartbeats show.
    """
    messages = {worker: _Message(plan_digest(plan), plan, (applied or {}).get(worker, 0)) for worker, plan in plans.items()}
    return _write(url, link_id, messages, secrets=secrets)


def end_workers(url: str, workers: Iterable[str], *, secrets: tuple[str, ...]) -> None:
    """Order workers to release everything and to end."""
    _write(url, END, {worker: _Message(END, None, 0) for worker in workers}, secrets=secrets)


def forget_workers(url: str, workers: Iterable[str]) -> None:
    """Remove the keys of workers that are gone."""
    names = list(workers)
    if not names:
        return
    with translate_redis_errors("forget workers"):
        client_for(url).hdel(_WORKERS, *names)
        client_for(url).delete(*[name for worker in names for name in (_assignment_of(worker), _digests_of(worker))])


@dataclass(frozen=True, slots=True)
class _Message:
    """A message to a worker."""

    digest: str
    plan: CopyPlan | None
    above: int  # its number has to be higher than this

    def is_news(self, known: str | None) -> bool:
        """Return whether it has to be written for a worker whose present message has the digest ``known``; None: none."""
        nothing = self.plan is not None and not self.plan.assignments
        return known != self.digest and not (nothing and known is None and not self.above)


def _write(url: str, name: str, messages: Mapping[str, _Message], *, secrets: tuple[str, ...]) -> set[str]:
    if not messages:
        return set()
    redis = client_for(url)
    with translate_redis_errors("store assignments"):
        pipeline = redis.pipeline(transaction=False)
        for worker in messages:
            pipeline.hget(_digests_of(worker), name)
            pipeline.pexpire(_assignment_of(worker), KEPT_MS)
            pipeline.pexpire(_digests_of(worker), KEPT_MS)
        known = pipeline.execute()[::3]
        changed = [worker for worker, digest in zip(messages, known, strict=True) if messages[worker].is_news(digest)]
        for worker in changed:
            seal, message = _seal_of(redis, worker, secrets), messages[worker]
            number = max(_next_number(redis, seal, worker, name), message.above + 1)
            words = {"worker": worker, "link": name, "number": number, "plan": message.plan and write_plan(message.plan)}
            keys, token = (_assignment_of(worker), _digests_of(worker)), seal.encrypt(json.dumps(words).encode()).decode()
            redis.eval(_WRITE, 2, *keys, KEPT_MS, uuid.uuid4().hex, name, message.digest, token)
    return set(changed)


def _seal_of(redis: Any, worker: str, secrets: tuple[str, ...]) -> Fernet:
    """Return the seal that a worker was started with, found by its heartbeat; that of the newest secret without a heartbeat."""
    beat = redis.hget(_WORKERS, worker) or ""
    seals = [Fernet(key_for(secret, worker)) for secret in secrets]
    return next((seal for seal in seals if _opened(seal, beat.partition(" ")[2]) is not None), seals[0])


def _next_number(redis: Any, seal: Fernet, worker: str, name: str) -> int:
    """Return a number above all used numbers: the time, or the last number plus one. A lower number would be refused."""
    last = redis.hget(_assignment_of(worker), name)
    message = None if last is None else _opened(seal, last)
    return max(time.time_ns() // 1_000_000, 0 if message is None else int(message.get("number", 0)) + 1)


def _opened(seal: Fernet, token: str) -> dict[str, Any] | None:
    try:
        message: Any = json.loads(seal.decrypt(token.encode()))
    except (InvalidToken, ValueError):
        return None
    return message if isinstance(message, dict) else None


def _heartbeat(worker_id: str, value: str, *, secrets: tuple[str, ...], now_ms: int) -> Heartbeat | None:
    try:
        at, token = value.split(" ", maxsplit=1)
        text = MultiFernet([Fernet(key_for(secret, worker_id)) for secret in secrets]).decrypt(token.encode()).decode()
        beat = read_heartbeat(text, silent_ms=max(0, now_ms - int(at)))
    except (InvalidToken, ValueError):
        return None  # sealed with another secret, or forged
    return beat if beat.worker_id == worker_id else None


def _assignment_of(worker_id: str) -> str:
    return f"copy-assignment:{{{worker_id}}}"


def _digests_of(worker_id: str) -> str:
    return f"copy-digest:{{{worker_id}}}"
