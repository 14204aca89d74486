"""This engine as it runs in production: set up the mirror, submit a copy slice over Spark Connect."""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial
from types import TracebackType
from typing import Self

from bench.submitting import Submitters
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from linkengine import jobs
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.dealing import tasks_for
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.plans import CopyPlan, CopyTuning, PartitionAssignment, producer_id_for
from linkengine.domain.signatures import Signer

SIGNER = Signer((secrets.token_bytes(32),))
LINK_ID = "bench"
SLICE_MS = 600_000  # one slice for the whole run; the latency run uses the default length
RELEASE_TIMEOUT_S = 15
COPY_TASKS = 2  # the product's default, CLUSTERLINK_COPY_TASKS


class EngineCopy:
    """One mirror being copied; a context manager that ends the copy."""

    def __init__(
        self,
        *,
        clusters: tuple[KafkaCluster, KafkaCluster],
        redis: RedisServer,
        submitters: Submitters,
        topic: str,
        partitions: int,
        number: int,
        bytes_per_s: float | None = None,
        overlap: bool = False,
    ) -> None:
        """Set up the mirror from the first cluster on the second.

        ``bytes_per_s`` of all partitions is what the product knows after its first slices.
        """
        source, destination = clusters
        self._source = address_from_properties(source.client_properties("link"))
        self._destination = address_from_properties(destination.client_properties("link"))
        self._redis_url, self._submitters, self._topic, self._overlap = redis.url, submitters, topic, overlap
        setup = MirrorSetup(
            link_id=LINK_ID, mirror_id=str(number), source=self._source, destination=self._destination,
            source_topic=topic, mirror_topic=topic,
        )  # fmt: skip
        created = jobs.setup_mirror(setup, assignments_factory=partial(self._assignments, number))
        rate = None if bytes_per_s is None else bytes_per_s / partitions
        self._tasks = tasks_for([rate] * partitions, most=COPY_TASKS)
        self._shares = self._assignments(number, partitions, created.source_topic_id)
        self._stopping = threading.Event()
        self._slices: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        return self._submitters.pid

    def __enter__(self) -> Self:
        self._order(wanted=True)
        self._keeper = threading.Thread(target=self._keep_copying, daemon=True)
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._order(wanted=False)
        self._keeper.join(timeout=RELEASE_TIMEOUT_S)
        for one in self._slices:
            one.join(timeout=RELEASE_TIMEOUT_S)

    def _keep_copying(self) -> None:
        """Submit slices; with ``overlap`` as the reconciler does, the next one before the current one ends."""
        tuning = CopyTuning(slice_ms=15_000, overlap_ms=5_000) if self._overlap else CopyTuning(slice_ms=SLICE_MS)
        while not self._stopping.is_set():
            one = threading.Thread(target=self._run_slice, args=(tuning,), daemon=True)
            one.start()
            self._slices.append(one)
            self._stopping.wait((tuning.slice_ms - tuning.overlap_ms) / 1000)

    def _run_slice(self, tuning: CopyTuning) -> None:
        plan = CopyPlan(
            link_id=LINK_ID, revision=1, slice_id=f"bench-{time.time_ns()}", source=self._source,
            destination=self._destination, redis_url=self._redis_url, assignments=self._shares, tasks=self._tasks,
            tuning=tuning, signing_keys=SIGNER.texts(),
        )  # fmt: skip
        self._submitters.copy_slice(plan)

    def _order(self, *, wanted: bool) -> None:
        jobs.write_orders(self._redis_url, LINK_ID, SIGNER, revision=1, wanted={self._shares[0].mirror_id: wanted})

    def _assignments(self, number: int, partitions: int, topic_id: str) -> tuple[PartitionAssignment, ...]:
        return tuple(
            PartitionAssignment(
                mirror_id=str(number), partition=partition, source_topic=self._topic, mirror_topic=self._topic,
                source_topic_id=topic_id, producer_id=producer_id_for(0, number, partition),
            )
            for partition in range(partitions)
        )  # fmt: skip
