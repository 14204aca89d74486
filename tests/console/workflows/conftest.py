"""Fixtures with real clusters: both are registered, a link connects them, topics have records. Tasks are called directly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from django.conf import settings as django_settings
from django.db import connection

from console.config import signing_keys
from console.models import Cluster, ClusterLink, CopyWorker, Environment, MirrorPartition, MirrorTopic
from console.tasks.mirrors import setup_mirror
from console.workflows import pool
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.copyjob.spark_job import copy_until_the_end
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.domain.workers import WorkerSetup
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.workflows.kills import CrashError, CrashingWorkers
from tests.console.workflows.reversal import Drive, beat, records, request_operation, side_of, states

MakeTopic = Callable[..., str]
Until = Callable[[Callable[[], Any]], Any]
POLL_EVERY_S = 0.15  # or as long as a check takes, if that is longer: it may read a whole topic
BEAT_S = 0.4
PATIENCE_S = 200.0


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/8"


@pytest.fixture
def destination(transactional_db: None, environment: Environment, destination_cluster: KafkaCluster) -> Cluster:
    return register(environment, "Destination", destination_cluster)


@pytest.fixture
def source(transactional_db: None, environment: Environment, source_cluster: KafkaCluster) -> Cluster:
    return register(environment, "Source", source_cluster)


@pytest.fixture
def there(source_cluster: KafkaCluster) -> ClusterAdmin:
    return _as_admin(source_cluster)


@pytest.fixture
def here(destination_cluster: KafkaCluster) -> ClusterAdmin:
    return _as_admin(destination_cluster)


def _as_admin(cluster: KafkaCluster) -> ClusterAdmin:
    return ClusterAdmin(address_from_properties(cluster.client_properties("admin")))


@pytest.fixture
def link(destination: Cluster, source: Cluster, source_cluster: KafkaCluster) -> ClusterLink:
    return ClusterLink.objects.create(
        name="real",
        destination=destination,
        source=source,
        source_cluster_id=source.cluster_id,
        properties=source_cluster.client_properties("admin"),
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )


@pytest.fixture
def make_topic(source_cluster: KafkaCluster, source_admin: AdminClient, topic_name: str) -> MakeTopic:
    """Create a source topic with 100 records per partition."""

    def make(*, partitions: int = 2) -> str:
        source_admin.create_topics([NewTopic(topic_name, partitions, 1)])[topic_name].result(30)
        producer = Producer(source_cluster.client("admin"))
        for number in range(100 * partitions):
            producer.produce(topic_name, f"value {number}", partition=number % partitions)
        assert producer.flush(30) == 0
        return topic_name

    return make


@pytest.fixture
def new_mirror(link: ClusterLink, make_topic: MakeTopic) -> MirrorTopic:
    """A mirror whose topic does not exist yet."""
    topic = make_topic()
    dated = {"state_since": NOW, "created_at": NOW}
    return MirrorTopic.objects.create(link=link, name=topic, source_topic=topic, state=MirrorState.PENDING_SETUP, **dated)


@pytest.fixture
def until() -> Until:
    """Repeat a check until it is true, and return its result."""

    def wait(condition: Callable[[], Any]) -> Any:
        began = time.monotonic()
        deadline = began + PATIENCE_S
        while not (seen := condition()):
            polled = time.monotonic()
            assert polled < deadline, f"The condition did not become true. {_situation()}"
            time.sleep(max(POLL_EVERY_S, polled - began))
            began = time.monotonic()
        return seen

    return wait


@pytest.fixture
def worker(sent: list[tuple[str, dict[str, Any]]]) -> Iterator[Callable[[], None]]:
    """Run the tasks that were sent, each in a thread, until the test ends. Call it to run what was sent since."""
    from console.celery import app  # noqa: PLC0415 - the tasks are registered by their import
    from console.tasks import __all__ as modules  # noqa: PLC0415

    assert modules
    threads: list[Thread] = []
    last_pass_at = 0.0

    def run(task: str, kwargs: dict[str, Any]) -> None:
        try:
            app.tasks[task](**kwargs)
        except CrashError:
            pass
        finally:
            connection.close()

    def work() -> None:
        nonlocal last_pass_at
        if time.monotonic() - last_pass_at > BEAT_S:
            last_pass_at = time.monotonic()
            pool.maintain_workers()
        while sent:
            task, kwargs = sent.pop(0)
            thread = Thread(target=run, args=(task, kwargs), daemon=True)
            threads.append(thread)
            thread.start()

    yield work
    end_copy_workers()
    for thread in threads:
        thread.join(90)


def end_copy_workers() -> None:
    """Order all copy workers to end, running or about to start."""
    names = {known.worker_id for known in pool.recent_heartbeats()} | set(
        CopyWorker.objects.values_list("worker_id", flat=True)
    )
    jobs.end_workers(django_settings.REDIS_URL, names - {""}, secrets=signing_keys.worker_secrets())


def _situation() -> str:
    partitions = list(MirrorPartition.objects.values_list("partition", "phase", "source_end", "mirror_end", "error_message"))
    links = list(ClusterLink.objects.values_list("state", "error_message", "engine_error"))
    workers = list(CopyWorker.objects.values_list("worker_id", "submitted_at", "ended_at", "error"))
    return f"Partitions: {partitions}. Links: {links}. Workers: {workers}, heartbeats {pool.recent_heartbeats()}."


def register(environment: Environment, name: str, cluster: KafkaCluster) -> Cluster:
    """Create the row of a running cluster."""
    return Cluster.objects.create(
        environment=environment,
        name=name,
        cluster_id=cluster.cluster_id,
        bootstrap_servers=cluster.bootstrap,
        properties=cluster.client_properties("admin"),
        created_at=NOW,
    )


@pytest.fixture
def copier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the copy worker in a thread of this process: the real code, with everything in Redis, only without Spark."""

    def copy(setup: WorkerSetup, *, spark_url: str) -> None:
        assert spark_url
        copy_until_the_end(setup)

    monkeypatch.setattr(jobs, "run_copy_worker", copy)
    _reply_in_process(monkeypatch)


def _reply_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run tasks that a caller waits for (``dispatch.call``) at once; without a worker the caller would time out."""
    from console.celery import app  # noqa: PLC0415 - the tasks are registered by their import
    from console.tasks import __all__ as modules  # noqa: PLC0415

    assert modules
    queue = app.send_task

    def send_task(name: str, *, kwargs: dict[str, Any], **options: Any) -> None:
        if "reply_to" in kwargs:
            app.tasks[name](**kwargs)
        else:
            queue(name, kwargs=kwargs, **options)

    monkeypatch.setattr(app, "send_task", send_task)


@pytest.fixture
def drive(worker: Callable[[], None], until: Until) -> Drive:
    """Run reconcile passes and their tasks until a check is true."""

    def work(condition: Callable[[], bool]) -> None:
        next_beat = 0.0

        def polled() -> bool:
            nonlocal next_beat
            if time.monotonic() < next_beat:
                worker()  # what the last beat and its tasks have sent
            else:
                beat(worker)
                next_beat = time.monotonic() + BEAT_S
            return condition()

        until(polled)

    return work


@pytest.fixture
def pair(destination: Cluster, source: Cluster) -> tuple[ClusterLink, ClusterLink]:
    """Both sides of a bidirectional link: the destination's, then the source's."""
    return side_of(destination, source), side_of(source, destination)


@pytest.fixture
def twin(pair: tuple[ClusterLink, ClusterLink], make_topic: MakeTopic) -> MirrorTopic:
    """A mirror on the destination's side, set up and not copied yet: 100 records in each of two partitions."""
    topic, dated = make_topic(), {"state_since": NOW, "created_at": NOW}
    row = MirrorTopic.objects.create(link=pair[0], name=topic, source_topic=topic, state=MirrorState.PENDING_SETUP, **dated)
    setup_mirror(mirror_id=row.pk)
    return MirrorTopic.objects.select_related("link__destination__environment").get(pk=row.pk)


@pytest.fixture
def stopped(twin: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive) -> MirrorTopic:
    """A mirror that was failed over with all 200 records."""
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    request_operation(twin, MirrorEvent.FAILOVER)
    drive(lambda: states(twin) == [MirrorState.STOPPED])
    return twin


@pytest.fixture
def export_directory(settings: Any, tmp_path: Path) -> None:
    """Store the export files of restores in the test's directory."""
    settings.EXPORT_DIR = str(tmp_path)


@pytest.fixture(scope="module")
def parent_of_workers() -> Iterator[list[CrashingWorkers]]:
    """Holds the parent process of all workers, which needs a database and Redis, so only a test can start it."""
    holder: list[CrashingWorkers] = []
    yield holder
    for parent in holder:
        parent.stop()


@pytest.fixture
def crashing_workers(
    parent_of_workers: list[CrashingWorkers],
    own_redis: None,
    transactional_db: None,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CrashingWorkers]:
    """Real workers for a test, which crash where it says. Replies are produced here, since their queue is different."""
    _reply_in_process(monkeypatch)
    if not parent_of_workers:
        parent_of_workers.append(CrashingWorkers(tmp_path_factory.mktemp("workers")))
    with parent_of_workers[0].living() as workers:
        yield workers
    end_copy_workers()
