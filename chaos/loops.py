"""The engine without Spark and console: a pool of copy workers in processes, kept going by a supervisor in a thread.

What the reconciler does in the product is done here in a few lines: partitions are dealt out to the workers that are heard, and
a worker that died or is silent is replaced.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from secrets import token_bytes
from typing import Any
from urllib.parse import urlsplit

import psutil

from chaos.copiers import Copiers, freeze, thaw
from chaos.effects import OWNERS_TIMEOUT_S, Blow, until, worker_of
from chaos.ground import Ground
from chaos.judge import Finding
from chaos.proxy import Proxy
from chaos.reading import Ends
from chaos.schedule import ENGINE_FAULTS, Fault, Strike
from devcluster.ports import LOOPBACK, free_port
from linkengine import jobs
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.assignment import Place, Wanted, assign
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop
from linkengine.domain.plans import (
    CopyPlan,
    CopyTuning,
    PartitionAssignment,
    PartitionPhase,
    PartitionProgress,
    producer_id_for,
)
from linkengine.domain.signatures import Signer
from linkengine.domain.states import StopReason
from linkengine.domain.workers import worker_id_for

LINK = "chaos"
SECRETS, SIGNER = (urlsafe_b64encode(token_bytes(32)).decode(),), Signer((token_bytes(32),))
POOL = 2  # copy workers
BEGIN_S = 10.0  # a worker that was not heard by then is replaced
DRAIN_S = 3.0  # of a worker that is replaced, for what it has under way
POLL_S = 0.25
AT_ONCE = 4  # mirrors that are set up, or promoted
REQUEST_TIMEOUT_MS = 8_000
SETUP_ATTEMPTS = 6
STOP_GENERATION = 1 << 20  # above every copier's
_mirrors = itertools.count(1)  # of this process: engines share a Redis


class LoopEngine:
    """Copies topics by copy loops in processes; a context manager."""

    def __init__(
        self, ground: Ground, topics: Mapping[str, int], *, mutation: str = "", tuning: CopyTuning | None = None
    ) -> None:
        """Create the mirrors; copy nothing yet."""
        self._ground, self._topics = ground, dict(topics)
        self._tuning = tuning or CopyTuning(request_timeout_ms=REQUEST_TIMEOUT_MS)
        self._addresses = {
            name: address_from_properties(side.cluster.proxied_properties("link"))
            for name, side in (("source", ground.source), ("destination", ground.destination))
        }
        ground.create_topics(topics)
        self._link = f"{LINK}-{mutation or 'whole'}-{next(_mirrors)}"
        numbers = [next(_mirrors) for _ in self._topics]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self.assignments = dict(zip(self._topics, pool.map(self._set_up, numbers, self._topics), strict=True))
        self._wanted = dict.fromkeys(self._topics, True)
        self._stopped: dict[str, dict[int, int]] = {}
        port, address = free_port(), urlsplit(ground.redis.url)
        self._way = Proxy([(port, address.port or 0)])  # of workers to Redis
        self._redis_url = address._replace(netloc=f":{address.password}@{LOOPBACK}:{port}").geturl()
        self._workers = itertools.count(1)
        self.copiers = Copiers(ground.directory / self._link, mutation=mutation)
        self._running: dict[int, str] = {}  # process -> its name
        self._pool: dict[int, tuple[str, float]] = {}  # place in the pool -> who has it, and since when
        self._placed: dict[str, str] = {}  # partition -> worker
        self._turned_until = 0.0  # somebody else deals out until then
        self._lock = threading.Lock()  # of what runs: the keeper and the faults start copiers
        self._failed: dict[str, PartitionProgress] = {}  # partitions that were given up
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None
        self._next_at = 0.0  # no worker is started before

    @property
    def faults(self) -> Collection[Fault]:
        return ENGINE_FAULTS

    def __enter__(self) -> LoopEngine:
        """Begin to copy and to keep copying."""
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._over.set()
        if self._keeper is not None:
            self._keeper.join(60)
        self.copiers.close()
        self._way.close()

    def strike(self, strike: Strike) -> Blow | None:
        moves: dict[Fault, Callable[[], None]] = {
            Fault.DRAIN: self._drain_one,
            Fault.REBALANCE: self._turn_round,
            Fault.TWO_ASSIGNERS: partial(self._deal_otherwise, strike.lasts_s),
            Fault.STALE_ASSIGNMENT: self._tell_again,
        }
        if strike.fault in moves:
            return self._moved(moves[strike.fault])
        match strike.fault:
            case Fault.KILL_COPIER:
                return self._kill_owner(strike)
            case Fault.STOP_COPIER:
                return self._freeze_all()
            case Fault.SECOND_COPIER | Fault.SECOND_OWNER:
                return self._copy_beside(strike)
            case Fault.CUT_REDIS:
                ended, way = self._way.ended, self._way
                return self._ground.once((way, "cut"), way.cut, way.mend, proof=lambda: way.ended > ended)
            case _:
                return self._ground.strike(strike)

    def _copy_beside(self, strike: Strike) -> Blow:
        pid = self.start_copier(seconds=strike.lasts_s)
        if strike.fault is Fault.SECOND_OWNER:
            return Blow(proof=self._ground.owners.end_leases)
        worker_id = self.running().get(pid, "")
        return Blow(proof=partial(self._ground.owners.beside, pid, worker_id, self._ground.destination_ports))

    def _kill_owner(self, strike: Strike) -> Blow | None:
        owners: list[int] = []

        def look() -> bool:
            names = {worker_of(token) for token in self._ground.owners.tokens().values()}
            owners[:] = [pid for pid, name in self.running().items() if name in names]
            return bool(owners)

        if not until(look, OWNERS_TIMEOUT_S):
            return None
        self.copiers.kill(owners[int(strike.pick * len(owners))])
        self._next_at = time.monotonic() + strike.lasts_s  # a supervisor that takes its time
        return Blow()

    def _freeze_all(self) -> Blow | None:
        before, pids = self._ground.owners.awaited(), list(self.running())
        if not before or not pids:
            return None
        freeze(pids)  # nothing is heard of them, and others are started
        return Blow(mend=partial(thaw, pids), proof=partial(self._ground.owners.taken_over, before))

    # --- moves -------------------------------------------------------------------------------------------------------

    def _moved(self, move: Callable[[], None]) -> Blow | None:
        before = self._ground.owners.awaited()
        if not before:
            return None
        move()
        return Blow(proof=partial(self._ground.owners.taken_over, before))

    def _drain_one(self) -> None:
        """Let the worker with most partitions be replaced; it is told to end once it has let go of them."""
        names = list(self._placed.values())
        most = max(set(names), key=names.count, default="")
        self._pool = {number: (name, since) for number, (name, since) in self._pool.items() if name != most}
        self._end_later([most], DRAIN_S)

    def _turn_round(self) -> None:
        """Give every partition to another worker of the pool."""
        names = sorted(name for name, _ in self._pool.values())
        following = dict(zip(names, names[1:] + names[:1], strict=True))
        self._placed = {key: following.get(name, name) for key, name in self._placed.items()}

    def _deal_otherwise(self, seconds: float) -> None:
        """Be two who deal out, and who do not know of each other."""
        self._turned_until = time.monotonic() + seconds

    def _tell_again(self) -> None:
        """Write back what workers were told before the partitions changed places; a worker has to refuse it."""
        with self._ground.client() as client:
            names = [f"copy-assignment:{{{name}}}" for name, _ in self._pool.values()]
            old: Any = {name: client.hgetall(name) for name in names}
            self._turn_round()
            self.give_orders()
            for name, told in old.items():
                digests = name.replace("assignment", "digest", 1)
                for link, token in told.items():
                    client.hset(name, link, token)
                    client.hset(digests, link, "what was told again")
                client.hset(digests, "stamp", str(time.monotonic_ns()))

    def _end_later(self, names: Collection[str], seconds: float) -> None:
        def end() -> None:
            with suppress(CoordinationUnavailableError):
                jobs.end_workers(self._ground.redis.url, names, secrets=SECRETS)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()

    # --- workers -----------------------------------------------------------------------------------------------------

    def start_copier(self, *, seconds: float | None = None, topics: Collection[str] | None = None) -> int:
        """Start one more worker that copies everything, beside the pool, until it is told to end; answer its process."""
        name, pid = self._start_worker()
        self._tell({name: self.plan(topics=topics)})
        if seconds is not None:
            self._end_later([name], seconds)
        return pid

    def _start_worker(self) -> tuple[str, int]:
        name = worker_id_for(next(self._workers), uuid.uuid4().hex[:12])
        setup = jobs.setup_worker(name, redis_url=self._redis_url, secrets=SECRETS, lease_ttl_ms=self._tuning.lease_ttl_ms)
        pid = self.copiers.copy(setup)
        with self._lock:
            self._running[pid] = name
        return name, pid

    def running(self) -> dict[int, str]:
        """Answer the names of the workers that have not ended, by process."""
        with self._lock:
            self._running = {pid: name for pid, name in self._running.items() if psutil.pid_exists(pid)}
            return dict(self._running)

    def plan(self, *, topics: Collection[str] | None = None, keys: Collection[str] | None = None) -> CopyPlan:
        """Answer the plan of one worker: all partitions that are wanted, or some of them."""
        wanted = self._topics if topics is None else topics
        return CopyPlan(
            link_id=self._link, revision=1, source=self._addresses["source"], destination=self._addresses["destination"],
            assignments=tuple(
                one
                for topic in wanted
                if self._wanted[topic]
                for one in self.assignments[topic]
                if keys is None or one.key in keys
            ),
            tuning=self._tuning, signing_keys=SIGNER.texts(),
        )  # fmt: skip

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        wanted = {topic: self._topics[topic] for topic in topics}
        source = Ends(self._ground.source.cluster.client(), wanted)
        mirror = Ends(self._ground.destination.cluster.client(), wanted)
        deadline = time.monotonic() + timeout_s
        while (there := source.all()) is None or there != (here := mirror.all()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"The mirrors do not catch up: source {there}, mirror {here if there else None}.")
            time.sleep(POLL_S)

    def fail_over(self, topic: str) -> None:
        self._stop(topic, StopReason.FAILOVER)

    def promote(self, topics: Collection[str], *, timeout_s: float) -> None:
        del timeout_s  # each stop has its own
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(partial(self._stop, reason=StopReason.PROMOTE), topics))

    def stopped(self, topic: str) -> dict[int, int]:
        return self._stopped.get(topic, {})

    def phases(self) -> dict[str, str]:
        """Answer what the copiers report, by partition: the phase, or the code of an error."""
        return {one.key: one.error_code or one.phase for one in self.reports()}

    def reports(self) -> list[PartitionProgress]:
        """Answer what the copiers report."""
        return jobs.read_progress(self._ground.redis.url, self._link, SIGNER)

    def give_orders(self) -> None:
        """Deal the partitions out to the workers of the pool that are heard, and tell them."""
        url = self._ground.redis.url
        alive = {one.worker_id for one in jobs.read_workers(url, secrets=SECRETS) if one.alive}
        places = [Place(worker_id=name) for name, _ in self._pool.values() if name in alive]
        wanted = [
            Wanted(key=one.key, link_id=self._link, worker_id=self._placed.get(one.key, "")) for one in self.plan().assignments
        ]
        self._placed = {one.key: one.worker_id for one in wanted} | assign(wanted, places)
        shares = {name: {key for key, worker in self._placed.items() if worker == name} for name in alive}
        if time.monotonic() < self._turned_until and len(places) > 1:  # two who disagree, ten times a second
            names = [one.worker_id for one in places]
            turned = dict(zip(names, names[1:] + names[:1], strict=True))
            self._tell({turned[name]: self.plan(keys=shares[name]) for name in names})
        self._tell({name: self.plan(keys=shares[name]) for name in self._ours(alive)})

    def _ours(self, alive: Collection[str]) -> set[str]:
        """Answer whom the pool tells what to copy: not those that were started beside it."""
        return {name for name, _ in self._pool.values()} & set(alive)

    def _tell(self, plans: Mapping[str, CopyPlan]) -> None:
        applied = dict.fromkeys(plans, 1)  # also a worker that has nothing to do is told so
        jobs.write_assignments(self._ground.redis.url, self._link, plans, secrets=SECRETS, applied=applied)

    def _note_failures(self) -> None:
        self._failed |= {one.key: one for one in self.reports() if one.phase is PartitionPhase.FAILED}

    def failures(self) -> Iterator[Finding]:
        self._note_failures()
        for topic, assignments in self.assignments.items():
            for one in assignments:
                if (failed := self._failed.get(one.key)) is not None:
                    detail = f"{failed.error_code}: {failed.error_message}"
                    yield Finding(kind="failed", topic=topic, partition=one.partition, offset=-1, detail=detail)

    def crashes(self) -> Iterator[Finding]:
        return self.copiers.crashes()

    def story(self) -> str:
        return self.copiers.log_tail()

    def _stop(self, topic: str, reason: StopReason) -> None:
        self._wanted[topic] = False
        with suppress(CoordinationUnavailableError):
            self.give_orders()
        stop = MirrorStop(
            source=self._addresses["source"], destination=self._addresses["destination"],
            assignments=self.assignments[topic], reason=reason, generation=STOP_GENERATION,
            source_topic=topic, mirror_topic=topic, source_configs={"cleanup.policy": "delete", "retention.ms": "-1"},
        )  # fmt: skip
        self._stopped[topic] = self.copiers.stop_mirror(stop)

    def _keep(self) -> None:
        while not self._over.wait(POLL_S):
            with suppress(CoordinationUnavailableError):
                self.give_orders()
                self._note_failures()
            with suppress(CoordinationUnavailableError):
                self._replace_workers()

    def _replace_workers(self) -> None:
        now, pids = time.monotonic(), {name: pid for pid, name in self.running().items()}
        alive = {one.worker_id for one in jobs.read_workers(self._ground.redis.url, secrets=SECRETS) if one.alive}
        for number in range(POOL):
            name, since = self._pool.get(number, ("", 0.0))
            silent = name not in alive and now - since > BEGIN_S
            if (name in pids and not silent) or now < self._next_at:
                continue
            if name:
                self._end_later([name], 0.0)  # one that was frozen hears of it when it goes on
            self._pool[number] = (self._start_worker()[0], now)

    def _set_up(self, number: int, topic: str) -> tuple[PartitionAssignment, ...]:
        setup = MirrorSetup(
            link_id=self._link, mirror_id=str(number), source=self._addresses["source"],
            destination=self._addresses["destination"], source_topic=topic, mirror_topic=topic,
        )  # fmt: skip

        def assignments(partitions: int, topic_id: str) -> tuple[PartitionAssignment, ...]:
            return tuple(
                PartitionAssignment(
                    mirror_id=str(number), partition=partition, source_topic=topic, mirror_topic=topic,
                    source_topic_id=topic_id, producer_id=producer_id_for(1, number, partition),
                )
                for partition in range(partitions)
            )  # fmt: skip

        for left in reversed(range(SETUP_ATTEMPTS)):
            try:
                created = jobs.setup_mirror(setup, assignments_factory=assignments)
            except LinkEngineError:  # brokers hear of new topics one after the other; the product repeats it as well
                if not left:
                    raise
            else:
                break
        return assignments(created.partitions, created.source_topic_id)
