"""This engine as it runs in production: set up the mirror, submit copy workers over Spark Connect, write their assignments."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from math import ceil
from secrets import token_bytes
from types import TracebackType
from typing import Self

from bench.submitting import Submitters
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from linkengine import jobs
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.plans import CopyPlan, CopyTuning, PartitionAssignment, producer_id_for
from linkengine.domain.signatures import Signer
from linkengine.domain.workers import PartitionLoad, PoolWorker, assign, worker_id_for

LINK_ID = "bench"
SECRETS, SIGNER = (urlsafe_b64encode(token_bytes(32)).decode(),), Signer((token_bytes(32),))
RELEASE_TIMEOUT_S = 15
MOST_WORKERS = 2  # half of the machine's processors would be 1; backlogs of many partitions get 2
PARTITIONS_PER_WORKER = 4


class EngineCopy:
    """A copy of a mirror; a context manager that ends the copy."""

    def __init__(
        self,
        *,
        source: Mapping[str, str],
        destination: KafkaCluster,
        redis: RedisServer,
        submitters: Submitters,
        topic: str,
        partitions: int,
        number: int,
        idle: bool = False,
    ) -> None:
        """Set up the mirror of ``source``, given by its client properties. ``idle``: there is little to copy."""
        self._source = address_from_properties(source)
        self._destination = address_from_properties(destination.client_properties("link"))
        self._redis_url, self._submitters, self._topic = redis.url, submitters, topic
        setup = MirrorSetup(
            link_id=LINK_ID, mirror_id=str(number), source=self._source, destination=self._destination,
            source_topic=topic, mirror_topic=topic,
        )  # fmt: skip
        created = jobs.set_up_mirror_topic(setup, assignments_factory=partial(self._assignments, number))
        count = 1 if idle else min(MOST_WORKERS, ceil(partitions / PARTITIONS_PER_WORKER))
        self._names = [worker_id_for(index, uuid.uuid4().hex[:12]) for index in range(count)]
        self._all = self._assignments(number, partitions, created.source_topic_id)
        self._jobs: list[Future[None]] = []

    @property
    def pid(self) -> int:
        return self._submitters.pid

    def __enter__(self) -> Self:
        moves = assign(
            [PartitionLoad(key=assignment.key, link_id=LINK_ID) for assignment in self._all],
            [PoolWorker(worker_id=name) for name in self._names],
        )
        assigned = {
            name: tuple(assignment for assignment in self._all if moves[assignment.key] == name) for name in self._names
        }
        plans = {
            name: CopyPlan(
                link_id=LINK_ID, revision=1, source=self._source, destination=self._destination, assignments=assignments,
                tuning=CopyTuning(), signing_keys=SIGNER.texts(),
            )
            for name, assignments in assigned.items()
        }  # fmt: skip
        jobs.write_assignments(self._redis_url, LINK_ID, plans, secrets=SECRETS)
        lease_ttl_ms = CopyTuning().lease_ttl_ms
        for name in self._names:
            setup = jobs.setup_worker(name, redis_url=self._redis_url, secrets=SECRETS, lease_ttl_ms=lease_ttl_ms)
            self._jobs.append(self._submitters.run_worker(setup))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        jobs.end_workers(self._redis_url, self._names, secrets=SECRETS)
        for job in self._jobs:
            job.result(timeout=RELEASE_TIMEOUT_S)

    def _assignments(self, number: int, partitions: int, topic_id: str) -> tuple[PartitionAssignment, ...]:
        return tuple(
            PartitionAssignment(
                mirror_id=str(number), partition=partition, source_topic=self._topic, mirror_topic=self._topic,
                source_topic_id=topic_id, producer_id=producer_id_for(0, number, partition),
            )
            for partition in range(partitions)
        )  # fmt: skip
