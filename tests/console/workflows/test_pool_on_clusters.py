"""The pool of copy workers on real clusters: rebalances during a promotion, a killed Spark Connect server, a new mirror."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.models import ClusterLink, CopyWorker, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.tasks.links import reconcile_link
from console.tasks.mirrors import setup_mirror
from console.workflows import pool
from devcluster.kafka import KafkaCluster
from devcluster.spark import SparkConnectServer
from linkengine import jobs
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.conftest import MakeTopic
from tests.console.workflows.reversal import Drive, records, request_operation, set_up, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
S = MirrorState
REBALANCE_S = 0.5


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


@pytest.mark.spark
def test_copying_resumes_automatically_after_the_spark_connect_server_was_killed(
    new_mirror: MirrorTopic,
    own_spark: SparkConnectServer,
    drive: Drive,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    record_property: Any,
) -> None:
    mirror = set_up(new_mirror)
    drive(lambda: len(records(destination_cluster, mirror.name)) == 200)

    own_spark.kill()
    write(source_cluster, mirror.source_topic, "while it is away")
    drive(lambda: "No Spark Connect server" in ClusterLink.objects.get().engine_error)
    own_spark.start()
    back_at = time.monotonic()
    drive(lambda: len(records(destination_cluster, mirror.name)) == 201)
    took_s = time.monotonic() - back_at

    drive(lambda: not ClusterLink.objects.get().engine_error)
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
