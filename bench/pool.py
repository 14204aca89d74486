"""Copy workers for many links, started and assigned as the console does it, and what their processes cost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import psutil

from bench.engine import SECRETS, SIGNER
from bench.submitting import Submitters
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from linkengine import jobs
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.plans import CopyPlan, CopyTuning, PartitionAssignment, producer_id_for
from linkengine.domain.workers import Heartbeat, worker_id_for

START_TIMEOUT_S, RELEASE_TIMEOUT_S = 60.0, 30.0
_POLL_S = 0.2


def mirrored(source: KafkaCluster, destination: KafkaCluster, topic: str, *, link_id: str, number: int) -> CopyPlan:
    """Create the mirror of a topic; return the plan of its link with all its partitions. ``number``: of the mirror, unique."""
    addresses = [address_from_properties(cluster.client_properties("link")) for cluster in (source, destination)]

    def assignments(count: int, topic_id: str) -> tuple[PartitionAssignment, ...]:
        return tuple(
            PartitionAssignment(
                mirror_id=str(number), partition=partition, source_topic=topic, mirror_topic=topic,
                source_topic_id=topic_id, producer_id=producer_id_for(0, number, partition),
            )
            for partition in range(count)
        )  # fmt: skip

    setup = MirrorSetup(
        link_id=link_id, mirror_id=str(number), source=addresses[0], destination=addresses[1],
        source_topic=topic, mirror_topic=topic,
    )  # fmt: skip
    created = jobs.set_up_mirror_topic(setup, assignments_factory=assignments)
    return CopyPlan(
        link_id=link_id, revision=1, source=addresses[0], destination=addresses[1], signing_keys=SIGNER.texts(),
        assignments=assignments(created.partitions, created.source_topic_id),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCost:
    """CPU time and memory that a copy worker's process used."""

    cores: float
    peak_mb: float  # resident memory


class CopyWorkers:
    """Running copy workers; a context manager that ends them."""

    def __init__(self, redis: RedisServer, submitters: Submitters, *, count: int) -> None:
        self._redis_url, self._submitters = redis.url, submitters
        self._jobs: list[Future[None]] = []
        self.ids: list[str] = []
        self._count = count

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._submit()
            self._wait_alive()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def assign(self, plan: CopyPlan, assigned: Mapping[str, Sequence[PartitionAssignment]]) -> None:
        """Write which worker copies which partitions of a link. A worker without partitions of it releases those it has."""
        workers = max(1, sum(map(bool, assigned.values())))
        plans = {worker: replace(plan, assignments=tuple(own), workers=workers) for worker, own in assigned.items()}
        jobs.write_assignments(self._redis_url, plan.link_id, plans, secrets=SECRETS)

    def watch(self) -> ProcessUsage:
        """Return a watch of the workers' processes from now on."""
        return ProcessUsage([beat.pid for beat in self._heartbeats().values()])

    def _submit(self) -> None:
        worker_id = worker_id_for(len(self.ids), uuid.uuid4().hex[:12])
        lease_ttl_ms = CopyTuning().lease_ttl_ms
        setup = jobs.setup_worker(worker_id, redis_url=self._redis_url, secrets=SECRETS, lease_ttl_ms=lease_ttl_ms)
        self._jobs.append(self._submitters.run_worker(setup))
        self.ids.append(worker_id)

    def _wait_alive(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(self._heartbeats()) < len(self.ids):
            for job in self._jobs:
                if job.done():
                    job.result()
                    raise RuntimeError("A copy worker has ended right after its start.")
            if time.monotonic() > deadline:
                raise TimeoutError(f"Not all copy workers have a heartbeat after {START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)

    def _heartbeats(self) -> dict[str, Heartbeat]:
        beats = jobs.read_workers(self._redis_url, secrets=SECRETS)
        return {beat.worker_id: beat for beat in beats if beat.worker_id in self.ids and beat.alive}

    def _end(self) -> None:
        jobs.end_workers(self._redis_url, self.ids, secrets=SECRETS)
        for job in self._jobs:
            job.result(timeout=RELEASE_TIMEOUT_S)


class ProcessUsage:
    """CPU time and memory of processes from the creation of this object on."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._began, self._before = time.monotonic(), [_cpu_s(process) for process in self._processes]
        self._peaks = [0.0 for _ in self._processes]
        self.sample()

    def sample(self) -> None:
        """Take a sample of the memory."""
        for number, process in enumerate(self._processes):
            with suppress(psutil.NoSuchProcess):  # ``costs`` raises it
                self._peaks[number] = max(self._peaks[number], process.memory_info().rss / 1e6)

    def costs(self) -> list[WorkerCost]:
        """Return the costs of each process; raise psutil.NoSuchProcess if a process has ended."""
        self.sample()
        seconds = time.monotonic() - self._began
        return [
            WorkerCost(cores=(_cpu_s(process) - before) / seconds, peak_mb=peak)
            for process, before, peak in zip(self._processes, self._before, self._peaks, strict=True)
        ]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
