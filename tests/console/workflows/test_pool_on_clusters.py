"""The pool of copy workers on real clusters: rebalances during a promotion, a killed Spark Connect server, a new mirror."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from console.models import ClusterLink, CopyWorker, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.tasks.clusters import probe_cluster
from console.tasks.links import reconcile_link
from console.tasks.mirrors import setup_mirror
from console.workflows import pool
from devcluster.kafka import KafkaCluster
from devcluster.spark import SparkConnectServer
from linkengine import jobs
from linkengine.domain.health import UNKNOWN_AFTER_MS
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.api.actors import make_client
from tests.console.conftest import NOW
from tests.console.pages.conftest import client_of
from tests.console.pages.test_health import badges
from tests.console.workflows.conftest import MakeTopic, Until
from tests.console.workflows.reversal import Drive, records, request_operation, set_up, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
S = MirrorState
REBALANCE_S = 0.5
NOT_REPORTED = {"UNKNOWN", "NOT_COPYING"}
ReadHealth = Callable[[], dict[str, str]]


def rebalance() -> None:
    """Move every partition to another worker, as a rebalance may do."""
    names = sorted(CopyWorker.objects.values_list("worker_id", flat=True))
    for row in MirrorPartition.objects.filter(worker_id__in=names):
        following = names[(names.index(row.worker_id) + 1) % len(names)]
        MirrorPartition.objects.filter(pk=row.pk).update(worker_id=following)


@pytest.mark.usefixtures("copier")
def test_partitions_may_be_rebalanced_during_a_promotion(
    new_mirror: MirrorTopic,
    drive: Drive,
    settings: Any,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    settings.COPY_WORKERS = 2
    mirror, moved_at, moves = set_up(new_mirror), time.monotonic(), 0
    drive(lambda: len(pool.current_pool().beats) == 2 and len(records(destination_cluster, mirror.name)) == 200)

    def move_often() -> bool:
        nonlocal moved_at, moves
        if time.monotonic() - moved_at > REBALANCE_S:
            moved_at, moves = time.monotonic(), moves + 1
            write(source_cluster, mirror.source_topic, f"{moves}", partition=moves % 2)
            rebalance()
        return moves >= 6

    drive(move_often)
    request_operation(mirror, MirrorEvent.PROMOTE)
    moves = 0
    drive(lambda: states(mirror) == [S.STOPPED] or (move_often() and False))

    mirrored = records(destination_cluster, mirror.name)
    assert mirrored.items() <= records(source_cluster, mirror.source_topic).items()
    ends = list(MirrorPartition.objects.order_by("partition").values_list("stopped_end", flat=True))
    assert sum(end or 0 for end in ends) == len(mirrored)


@pytest.fixture
def own_spark(tmp_path: Path, settings: Any) -> Iterator[SparkConnectServer]:
    with SparkConnectServer(directory=tmp_path / "spark", master="local[4,8]") as server:
        settings.SPARK_URL = server.url
        yield server


@pytest.fixture
def read_health(new_mirror: MirrorTopic, settings: Any) -> ReadHealth:
    """Return the health of a mirror, its link, cluster and environment, as pages, REST and metrics show it."""
    settings.API_RATE_PER_S = 0
    link, cluster = new_mirror.link, new_mirror.link.destination
    environment = cluster.environment
    for known in (cluster, link.source):
        probe_cluster(cluster_pk=known.pk)  # type: ignore[union-attr]
    rest = make_client(environment, name="owner", role="EnvironmentAdmin")
    client = client_of(User.objects.get(username="owner"))
    pages = [row.get_absolute_url() for row in (new_mirror, link, cluster, environment)]
    base, place = f"/api/v1/clusters/{cluster.cluster_id}", f'environment="{environment.slug}"|cluster="{cluster.cluster_id}"'
    paths = [f"{base}/links/{link.name}/health", f"{base}/health", f"/api/v1/environments/{environment.slug}/health"]
    state = f"{base}/links/{link.name}/mirrors/{new_mirror.name}/state"
    sample = re.compile(
        rf'^(clusterlink_\w+_health)\{{(?:{place}),health="(\w+)"(?:,link="{link.name}")?\}} 1\.0$', re.MULTILINE
    )

    def read() -> dict[str, str]:
        found = {url: badges(client, url)[0] for url in pages}
        found |= {path: rest.get(path).json()["health"] for path in paths}
        found[state] = rest.get(state).json()["health"]["health"]
        metrics = {name: value.upper() for name, value in sample.findall(client.get("/metrics").content.decode())}
        assert len(metrics) == 4, metrics
        return found | metrics

    return read


class Outage:
    """The health that is shown while nothing is copied, from now on."""

    def __init__(self, read: ReadHealth) -> None:
        self._read, self._began = read, time.monotonic()

    def shown(self) -> set[str]:
        """Return every health that is shown; only those of ``NOT_REPORTED`` once all reports are too old."""
        overdue = time.monotonic() - self._began >= UNKNOWN_AFTER_MS / 1000
        found = self._read()
        assert not overdue or set(found.values()) <= NOT_REPORTED, found
        return set(found.values())


@pytest.mark.spark
def test_health_shows_that_the_spark_connect_server_was_killed_and_copying_resumes_automatically(
    new_mirror: MirrorTopic,
    own_spark: SparkConnectServer,
    drive: Drive,
    until: Until,
    read_health: ReadHealth,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    record_property: Any,
) -> None:
    mirror = set_up(new_mirror)
    drive(lambda: len(records(destination_cluster, mirror.name)) == 200 and set(read_health().values()) == {"HEALTHY"})

    own_spark.kill()  # with its executors and the copy worker
    outage = Outage(read_health)
    until(lambda: outage.shown() <= NOT_REPORTED)  # without a reconcile pass, as if no Celery worker ran either
    write(source_cluster, mirror.source_topic, "while it is away")
    drive(lambda: outage.shown() == {"NOT_COPYING"} and "No Spark Connect server" in ClusterLink.objects.get().engine_error)
    own_spark.start()
    back_at = time.monotonic()
    drive(lambda: len(records(destination_cluster, mirror.name)) == 201)
    took_s = time.monotonic() - back_at

    drive(lambda: not ClusterLink.objects.get().engine_error and set(read_health().values()) == {"HEALTHY"})
    record_property("seconds_until_copied", took_s)
    assert took_s < 90  # also on a slow machine
    assert records(destination_cluster, mirror.name) == records(source_cluster, mirror.source_topic)


@pytest.mark.usefixtures("copier")
def test_new_mirror_is_copied_within_seconds_by_a_running_copy_worker(
    link: ClusterLink, make_topic: MakeTopic, drive: Drive, settings: Any, record_property: Any
) -> None:
    drive(lambda: CopyWorker.objects.filter(worker_id__in=pool.current_pool().beats).exists())  # not of an earlier test
    before, topic, dated = CopyWorker.objects.get().worker_id, make_topic(), {"state_since": NOW, "created_at": NOW}
    row = MirrorTopic.objects.create(link=link, name=topic, source_topic=topic, state=S.PENDING_SETUP, **dated)

    setup_mirror(mirror_id=row.pk)
    made_at = time.monotonic()
    reconcile_link(link_id=link.pk)  # sent at the end of the set-up
    key, signer = plans.link_key(link), plans.signer_of(link)
    while [progress.mirror_end for progress in jobs.read_progress(settings.REDIS_URL, key, signer)] != [100, 100]:
        assert time.monotonic() - made_at < 60, (pool.current_pool(), list(MirrorPartition.objects.values()), states(row))
        time.sleep(0.02)
    took_s = time.monotonic() - made_at

    assert CopyWorker.objects.get().worker_id == before
    record_property("seconds_until_copied", took_s)  # the report follows half a second later
