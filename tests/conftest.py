"""Real parts for the whole suite: two Kafka clusters, Redis and Spark Connect, each started on first use.

The environment of the settings is written here, before anything reads it, and Django is set up at once. Ports are therefore
chosen now, and the programs start on them later. (The settings module must not be named in pytest's own configuration:
pytest-django would load it before this file.) What a test breaks on purpose it gets from `make_cluster`.
"""

import base64
import gc
import os
import secrets
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import django
import pytest
from confluent_kafka.admin import AdminClient
from django.conf import settings as django_settings
from django.core.management.color import no_style
from django.db import connections
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker

from devcluster.kafka import KafkaCluster
from devcluster.ports import LOOPBACK, free_port
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer

REDIS_PORT, REDIS_PASSWORD = free_port(), secrets.token_urlsafe(24)
SPARK_PORT, SPARK_TOKEN = free_port(), secrets.token_urlsafe(32)
SPARK_SESSION = uuid.uuid4()  # of all processes: Spark starts a daemon for Python workers per session, which takes seconds
_HOME = tempfile.TemporaryDirectory(prefix="clusterlink-tests-")

os.environ.update(
    DJANGO_SETTINGS_MODULE="console.settings",
    CLUSTERLINK_REDIS_URL=f"redis://:{REDIS_PASSWORD}@{LOOPBACK}:{REDIS_PORT}/0",
    CLUSTERLINK_SPARK_URL=f"sc://{LOOPBACK}:{SPARK_PORT}/;session_id={SPARK_SESSION}",
    CLUSTERLINK_SPARK_TOKEN=SPARK_TOKEN,
    CLUSTERLINK_SECRET_KEY=secrets.token_urlsafe(50),
    CLUSTERLINK_CREDENTIALS_KEY=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    CLUSTERLINK_ALLOWED_HOSTS=f"{LOOPBACK},localhost,testserver",
    CLUSTERLINK_COPY_WORKERS="1",
    CLUSTERLINK_DEBUG="false",
    PYTHONDONTWRITEBYTECODE="",  # as in the Makefile: each process that a test starts would compile the whole product
    # Brokers and Spark live for minutes here: compiling their code a second time, and better, costs more than it gives.
    # With this option alone a JVM reserves 48 MB for compiled code. Spark fills them in half an hour, then compiles nothing.
    JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
)
sys.dont_write_bytecode = False  # in this process, for the rewritten modules of the tests
# not forced: the database part of the suite also runs against a PostgreSQL named from outside
os.environ.setdefault("CLUSTERLINK_DATABASE_URL", f"sqlite:///{_HOME.name}/tests.sqlite3")
django.setup()
# WhiteNoise warns where it does not exist; tests find static files where they are written (`WHITENOISE_USE_FINDERS`)
Path(django_settings.STATIC_ROOT).mkdir(exist_ok=True)
# a password's hash costs half a second by default, on purpose
django_settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def _delete_rows(case: TransactionTestCase) -> None:
    """Delete the rows that a transactional test has created.

    Django's `flush` also deletes the content types and permissions that migrations create, and creates them again, which
    takes longer than everything else. No test changes them.
    """
    for database in case._databases_names(include_mirrors=False):  # type: ignore[attr-defined]  # private
        connection = connections[database]
        existing = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
        tables = sorted(existing - {"auth_permission", "django_content_type"})
        connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), tables))


TransactionTestCase._fixture_teardown = _delete_rows  # type: ignore[attr-defined]  # private

# Not for the processes of pytest-xdist: pytest-django would load the settings before this file chose their ports.
del os.environ["DJANGO_SETTINGS_MODULE"]

# how long an example takes says more about what else the machine does than about the code
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

pytest_plugins = ["tests.unit_lane"]

MakeCluster = Callable[..., KafkaCluster]

SHARED = {"source_cluster", "destination_cluster", "spark_server"}
CLUSTERS = SHARED | {"make_cluster"}  # a test with one of these fixtures waits for another process most of the time
# Of the shared clusters, which exist for the whole run and collect hundreds of topics. With the intervals of development
# clusters an idle broker takes 3.5 % of a core, mostly for these; tests wait for retention and compaction in few places.
CALM: Mapping[str, object] = {
    "log.retention.check.interval.ms": 2000,
    "log.cleaner.backoff.ms": 1500,
    "broker.heartbeat.interval.ms": 1500,
    "replica.high.watermark.checkpoint.interval.ms": 60_000,  # of all partitions; read when a broker starts again
}
LONG_S = 280  # a file with a test that may take this long starts clusters of its own or waits for many processes
MANY = 150  # tests of a file that take long together


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Detect JSON support, which takes Django three queries once, before a test counts queries."""
    with django_db_blocker.unblock():
        assert connections["default"].features.supports_json_field


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the files of each kind over the run: a file stays on one worker.

    Files with long tests wait for each other if several run at once. Those that may take longest come first, and all of them
    before the last minutes, in which short files occupy all workers. Tests of clusters mostly wait, pages mostly compute;
    pytest-django, which sorts tests by their use of the database, would leave almost all tests of clusters to the end.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    kinds: dict[tuple[bool, ...], list[Path]] = {}
    for path in sorted(files, key=lambda path: -_longest_s(files[path])):
        kinds.setdefault(_kind(files[path]), []).append(path)
    place = {path: (0.85 if kind[0] else 1.0) * n / len(paths) for kind, paths in kinds.items() for n, path in enumerate(paths)}
    items.sort(key=lambda item: place[item.path])


def _kind(items: list[pytest.Item]) -> tuple[bool, ...]:
    """Return whether a file takes long, with a long test or many tests, or else whether it needs clusters and the database."""
    if _longest_s(items) >= LONG_S or len(items) >= MANY:
        return (True, len(items) >= MANY)
    fixtures = {name for item in items for name in getattr(item, "fixturenames", ())}
    database = "_django_db_helper" in fixtures or any(item.get_closest_marker("django_db") for item in items)
    return (False, bool(fixtures & CLUSTERS), database)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect tests without garbage collections, and exempt what exists afterwards from later collections.

    All modules and more than 8,000 tests are almost a million permanent objects. A full collection scans them for a second;
    those during the collection of tests were a quarter of its time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _longest_s(items: list[pytest.Item]) -> float:
    markers = [marker for item in items if (marker := item.get_closest_marker("timeout")) is not None]
    return max((float(marker.args[0]) for marker in markers), default=0.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show with a failure the last output of the shared programs of its test."""
    report: Any = yield
    if report.failed:
        shared = getattr(item, "funcargs", {})
        for name in SHARED & shared.keys():
            report.sections.append((f"log of {name}", shared[name].log_tail()))
    return report


@pytest.fixture(scope="session")
def source_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """The shared cluster that tests mirror from: one broker, SASL, ACLs."""
    cluster = KafkaCluster("source", directory=tmp_path_factory.mktemp("source"), extra=CALM)
    yield cluster.start()
    _discard(cluster)


@pytest.fixture(scope="session")
def destination_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """The shared cluster that tests mirror to: one broker, SASL, ACLs."""
    cluster = KafkaCluster("destination", directory=tmp_path_factory.mktemp("destination"), extra=CALM)
    yield cluster.start()
    _discard(cluster)


@pytest.fixture(scope="session")
def source_admin(source_cluster: KafkaCluster) -> AdminClient:
    """An administrator of the source cluster."""
    return AdminClient(source_cluster.client("admin"))


@pytest.fixture(scope="session")
def destination_admin(destination_cluster: KafkaCluster) -> AdminClient:
    """An administrator of the destination cluster."""
    return AdminClient(destination_cluster.client("admin"))


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Start clusters that belong to one test, which may kill and restart them; same arguments as `KafkaCluster`."""
    started: list[KafkaCluster] = []

    def make(name: str = "own", **options: Any) -> KafkaCluster:
        cluster = KafkaCluster(name, directory=tmp_path / f"{name}-{len(started)}", **options)
        started.append(cluster)
        return cluster.start()

    yield make
    for cluster in started:
        _discard(cluster)


def _discard(cluster: KafkaCluster) -> None:
    """Stop a cluster whose data is not needed again: a clean stop writes snapshots of all partitions and takes seconds."""
    cluster.kill_all()
    cluster.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The shared Redis that the settings name."""
    with RedisServer(directory=tmp_path_factory.mktemp("redis"), port=REDIS_PORT, password=REDIS_PASSWORD) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_server: RedisServer) -> str:
    """The address of the shared Redis."""
    return redis_server.url


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    """The shared Spark Connect server that the settings name."""
    with SparkConnectServer(directory=tmp_path_factory.mktemp("spark"), port=SPARK_PORT, token=SPARK_TOKEN) as server:
        yield server


@pytest.fixture(scope="session")
def spark_connect_url(spark_server: SparkConnectServer) -> str:
    """The address of the shared Spark Connect server."""
    return spark_server.url


@pytest.fixture
def topic_name() -> str:
    """A topic name no other test uses."""
    return f"topic-{secrets.token_hex(6)}"
