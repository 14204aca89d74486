"""Faults that run inside the product, on its rows and Redis, without Kafka and Spark."""

from __future__ import annotations

import base64
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings as django_settings

from chaos import inside
from console.config import signing_keys
from console.models import Cluster, ClusterLink, CopyWorker, Environment, MirrorPartition, MirrorTopic, Organization
from console.queue import dispatch
from console.reconciling import plans
from console.redis import redis_client
from console.workflows import leases, pool
from linkengine import jobs
from linkengine.coordination.pool import RedisAssignments
from linkengine.domain.states import MirrorState
from linkengine.domain.workers import AssignmentStatus, Heartbeat, worker_id_for

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PARTITIONS = 4
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]


class Worker:
    """A copy worker of the pool: it sends heartbeats and reads its assignments."""

    def __init__(self, number: int) -> None:
        self.worker_id = worker_id_for(number, "a")
        CopyWorker.objects.create(number=number, worker_id=self.worker_id, submitted_at=NOW)
        secrets = signing_keys.worker_secrets()
        setup = jobs.setup_worker(self.worker_id, redis_url=django_settings.REDIS_URL, secrets=secrets, lease_ttl_ms=4_000)
        self._assignments = RedisAssignments(setup)
        self._assignments.beat(Heartbeat(worker_id=self.worker_id))

    def partitions(self, link: ClusterLink) -> set[int]:
        """Return what it is to copy, and report that it follows this assignment."""
        assigned = self._assignments.read()
        links = {name: AssignmentStatus(applied=number) for name, number in assigned.numbers.items()}
        self._assignments.beat(Heartbeat(worker_id=self.worker_id, links=links))
        return {assignment.partition for assignment in assigned.plans[plans.link_key(link)].assignments}


@pytest.fixture(autouse=True)
def fast(settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/14"
    settings.COPY_WORKERS = 2
    redis_client().flushdb()
    redis_client().set("console:copy-workers-since", 1)  # Redis has run for long
    monkeypatch.setattr(pool, "HEARTBEAT_CACHE_S", 0.0)
    monkeypatch.setattr(dispatch, "send", lambda *_, **__: None)
    monkeypatch.setattr(inside, "VIEW_S", 0.02)


@pytest.fixture
def link() -> ClusterLink:
    organization = Organization.objects.create(name="Acme", created_at=NOW)
    environment = Environment.objects.create(organization=organization, name="Production", slug="production", created_at=NOW)
    source, destination = (
        Cluster.objects.create(
            environment=environment, name=name, cluster_id=f"{name}-id", bootstrap_servers=f"{name}.test:9092",
            properties={"bootstrap.servers": f"{name}.test:9092"}, created_at=NOW,
        )
        for name in ("source", "destination")
    )  # fmt: skip
    return ClusterLink.objects.create(
        name="storm", destination=destination, source=source, source_cluster_id=source.cluster_id,
        properties=dict(source.properties), state_since=NOW, created_at=NOW, created_by="owner",
    )  # fmt: skip


@pytest.fixture
def mirror(link: ClusterLink) -> MirrorTopic:
    mirror = MirrorTopic.objects.create(
        link=link, name="orders", source_topic="orders", source_topic_id="topic-id", num_partitions=PARTITIONS,
        state=MirrorState.ACTIVE, state_since=NOW, created_at=NOW, created_by="owner",
    )  # fmt: skip
    for number in range(PARTITIONS):
        MirrorPartition.objects.create(
            mirror=mirror, partition=number, source_end=10, last_high_watermark=10, mirror_end=10,
            worker_id=worker_id_for(number % 2, "a"),
        )  # fmt: skip
    return mirror


@pytest.fixture
def workers(link: ClusterLink, mirror: MirrorTopic) -> list[Worker]:
    """Two copy workers with half of the partitions each."""
    assert mirror.num_partitions
    found = [Worker(number) for number in range(2)]
    leases.publish_or_request_assignments(link.pk)
    assert [worker.partitions(link) for worker in found] == [{0, 2}, {1, 3}]
    return found


def placed() -> list[str]:
    return list(MirrorPartition.objects.order_by("partition").values_list("worker_id", flat=True))


def test_rotate_moves_every_partition_to_the_next_worker(link: ClusterLink, workers: list[Worker]) -> None:
    first, second = (worker.worker_id for worker in workers)

    assert inside.rotate() == PARTITIONS
    assert placed() == [second, first] * 2
    leases.publish_or_request_assignments(link.pk)
    assert [worker.partitions(link) for worker in workers] == [{1, 3}, {0, 2}]


def test_drain_leaves_no_number_with_its_worker(workers: list[Worker]) -> None:
    inside.drain()

    assert not CopyWorker.objects.filter(worker_id__in=[worker.worker_id for worker in workers]).exists()


def test_the_assigner_with_the_older_view_publishes_last_until_the_reconciler_corrects_it(
    link: ClusterLink, workers: list[Worker]
) -> None:
    published = jobs.write_assignments

    assert inside.assign_twice(0.01) == 1

    assert [worker.partitions(link) for worker in workers] == [{0, 2}, {1, 3}]  # as before the move
    assert placed() == [workers[1].worker_id, workers[0].worker_id] * 2
    assert jobs.write_assignments is published
    leases.publish_or_request_assignments(link.pk)
    assert [worker.partitions(link) for worker in workers] == [{1, 3}, {0, 2}]


def test_partitions_move_before_a_promotion_has_drained(link: ClusterLink, workers: list[Worker]) -> None:
    assert inside.promote_and_rotate("orders")

    row = MirrorTopic.objects.get(name="orders")
    assert (row.state, row.stop_reason, row.drained_at) == (MirrorState.PENDING_STOPPED, "promote", None)
    assert [worker.partitions(link) for worker in workers] == [{1, 3}, {0, 2}]


def test_a_promotion_that_has_drained_first_does_not_count(workers: list[Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    def drained() -> int:
        return MirrorTopic.objects.update(drained_at=NOW)

    assert workers
    monkeypatch.setattr(inside, "rotate", drained)
    assert not inside.promote_and_rotate("orders")


def test_a_promotion_that_is_not_accepted_is_an_error(workers: list[Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    assert workers
    monkeypatch.setattr(inside, "ACCEPT_TIMEOUT_S", 0.0)
    monkeypatch.setattr(inside, "RETRY_S", 0.01)
    MirrorTopic.objects.update(state=MirrorState.STOPPED)

    with pytest.raises(TimeoutError, match="orders was not accepted"):
        inside.promote_and_rotate("orders")


def test_the_plan_has_all_partitions(workers: list[Worker]) -> None:

    assert workers
    whole, lease_ttl_ms = pickle.loads(base64.b64decode(inside.plan()))
    assert [assignment.partition for assignment in whole.assignments] == list(range(PARTITIONS))
    assert lease_ttl_ms == plans.TUNING.lease_ttl_ms
