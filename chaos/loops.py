"""The engine without Spark and console: copier processes in overlapping slices, kept going by a supervisor in a thread.

What the reconciler does in the product is done here in a few lines: orders are written every second, the next slice is
started before the last one ends, and a copier that died is replaced.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import psutil

from chaos.copiers import Copiers, freeze, thaw
from chaos.effects import OWNERS_TIMEOUT_S, Blow, slice_of, until
from chaos.ground import Ground
from chaos.judge import Finding
from chaos.reading import Ends
from chaos.schedule import ENGINE_FAULTS, Fault, Strike
from linkengine import jobs
from linkengine.domain.addresses import address_from_properties
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

SIGNER = Signer((secrets.token_bytes(32),))
LINK = "chaos"
SLICE_S, OVERLAP_S = 12.0, 3.0
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
        self._slices = itertools.count(1)
        self.copiers = Copiers(ground.directory / self._link, mutation=mutation)
        self._running: dict[int, str] = {}  # process -> its slice
        self._lock = threading.Lock()  # of what runs: the keeper and the faults start copiers
        self._failed: dict[str, PartitionProgress] = {}  # partitions that were given up
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None
        self._next_at = 0.0

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

    def strike(self, strike: Strike) -> Blow | None:
        match strike.fault:
            case Fault.KILL_COPIER:
                return self._kill_owner(strike)
            case Fault.STOP_COPIER:
                return self._freeze_all()
            case Fault.SECOND_COPIER:
                pid = self.start_copier(slice_s=strike.lasts_s)
                slice_id = self.running().get(pid, "")
                return Blow(proof=partial(self._ground.owners.beside, pid, slice_id, self._ground.destination_ports))
            case Fault.SECOND_OWNER:
                self.start_copier(slice_s=strike.lasts_s)
                return Blow(proof=self._ground.owners.end_leases)
            case _:
                return self._ground.strike(strike)

    def _kill_owner(self, strike: Strike) -> Blow | None:
        owners: list[int] = []

        def look() -> bool:
            slices = {slice_of(token) for token in self._ground.owners.tokens().values()}
            owners[:] = [pid for pid, slice_id in self.running().items() if slice_id in slices]
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
        freeze(pids)
        self._next_at = time.monotonic()  # the reconciler hears nothing of them and starts another
        return Blow(mend=partial(thaw, pids), proof=partial(self._ground.owners.taken_over, before))

    def start_copier(self, *, slice_s: float = SLICE_S, topics: Collection[str] | None = None) -> int:
        """Start one more copier for a slice."""
        plan = self.plan(slice_s=slice_s, topics=topics)
        pid = self.copiers.copy(plan)
        with self._lock:
            self._running[pid] = plan.slice_id
        return pid

    def running(self) -> dict[int, str]:
        """Answer the slices of the copiers that have not ended, by process."""
        with self._lock:
            self._running = {pid: slice_id for pid, slice_id in self._running.items() if psutil.pid_exists(pid)}
            return dict(self._running)

    def plan(self, *, slice_s: float = SLICE_S, topics: Collection[str] | None = None) -> CopyPlan:
        """Answer the plan of one slice."""
        wanted = self._topics if topics is None else topics
        return CopyPlan(
            link_id=self._link, revision=1, slice_id=f"slice-{next(self._slices)}", source=self._addresses["source"],
            destination=self._addresses["destination"], redis_url=self._ground.redis.url,
            signing_keys=SIGNER.texts(),
            assignments=tuple(one for topic in wanted if self._wanted[topic] for one in self.assignments[topic]),
            tuning=replace(self._tuning, slice_ms=int(slice_s * 1000)),
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
        """Tell running copiers which mirrors go on."""
        orders = {self.assignments[topic][0].mirror_id: wanted for topic, wanted in self._wanted.items()}
        jobs.write_orders(self._ground.redis.url, self._link, SIGNER, revision=1, wanted=orders)

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
            now = time.monotonic()
            if now >= self._next_at:
                self._next_at = now + SLICE_S - OVERLAP_S
                self.start_copier()

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
