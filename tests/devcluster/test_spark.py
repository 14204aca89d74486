"""The embedded Spark Connect server: runs queries and Python, reads Kafka, listens only on this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import Row
from pyspark.sql.connect.session import SparkSession

import devcluster
from devcluster.kafka import KafkaCluster
from devcluster.reaper import session_members
from devcluster.spark import SparkConnectServer
from linkengine import sparkclient
from linkengine.sparkclient import SparkUnavailableError
from tests.sparksecrets import exposed

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark_connect_url: str) -> Iterator[SparkSession]:
    session = SparkSession.builder.remote(spark_connect_url).create()
    yield session
    session.stop()


def run_python_task(session: SparkSession) -> Row:
    """Run a task and return its row; the function is nested so that it is pickled by value, not by the name of this module."""

    def describe_worker(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"pid": [os.getpid()], "file": [devcluster.__file__]})

    return session.range(0, 1, 1, 1).mapInArrow(describe_worker, "pid long, file string").collect()[0]


def test_a_query_returns_its_result(session: SparkSession) -> None:
    assert session.range(1000).filter("id % 2 = 0").count() == 500


def test_python_workers_import_the_project_and_are_reused(session: SparkSession) -> None:
    first, second = run_python_task(session), run_python_task(session)

    assert first.file.endswith("devcluster/__init__.py")
    assert first.pid == second.pid


def test_a_kafka_topic_is_read(session: SparkSession, source_cluster: KafkaCluster, topic_name: str) -> None:
    admin = AdminClient(source_cluster.client("admin"))
    admin.create_topics([NewTopic(topic_name, num_partitions=1, replication_factor=1)])[topic_name].result(20)
    producer = Producer(source_cluster.client("app"))
    producer.produce(topic_name, b"value", key=b"key")
    assert producer.flush(20) == 0
    options = {f"kafka.{name}": value for name, value in source_cluster.client_properties("app").items()}

    rows = (
        session.read.format("kafka")
        .options(**options, subscribe=topic_name, startingOffsets="earliest", endingOffsets="latest")
        .load()
        .collect()
    )

    assert [(row.offset, bytes(row.key), bytes(row.value)) for row in rows] == [(0, b"key", b"value")]


def test_the_server_listens_only_on_this_machine(spark_server: SparkConnectServer, session: SparkSession) -> None:
    listening = [
        connection.laddr.ip
        for pid in session_members(spark_server.pid)
        for connection in psutil.Process(pid).net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    ]

    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


def test_a_server_that_hangs_is_killed_after_a_thread_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devcluster.spark, "FIRST_QUERY_TIMEOUT_S", 0.05)
    server = SparkConnectServer(directory=tmp_path)

    with pytest.raises(PySparkException):
        server.start()

    assert not session_members(server.pid)
    assert "Full thread dump" in (tmp_path / "spark.log").read_text(errors="replace")


@pytest.mark.parametrize("token", ["", "/;authorization=Bearer%20guessed"])
def test_a_session_without_the_token_is_refused(spark_server: SparkConnectServer, token: str) -> None:
    with pytest.raises(SparkConnectGrpcException, match="UNAUTHENTICATED"):
        SparkSession.builder.remote(f"{spark_server.address}{token}").create().range(1).count()


def test_the_error_of_a_refused_token_names_the_setting(spark_server: SparkConnectServer) -> None:
    with pytest.raises(SparkUnavailableError, match="Set CLUSTERLINK_SPARK_TOKEN"):
        sparkclient.session(spark_server.address)


def test_spark_processes_have_no_secret_in_environment_or_arguments(
    spark_server: SparkConnectServer, session: SparkSession
) -> None:
    run_python_task(session)
    secrets = [line.split()[1] for line in spark_server.secrets_file.read_text().splitlines()]
    assert len(secrets) == 2

    members = session_members(spark_server.pid)
    assert len(members) >= 3  # the server, the daemon of its Python workers, a worker
    assert exposed(members, secrets) == []
    assert spark_server.secrets_file.stat().st_mode & 0o077 == 0


def test_a_task_inherits_no_setting_of_the_product(session: SparkSession) -> None:
    def list_settings(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"name": [name for name in os.environ if name.startswith("CLUSTERLINK_")]})

    assert session.range(0, 1, 1, 1).mapInArrow(list_settings, "name string").count() == 0


def test_spark_authenticates_its_own_connections(session: SparkSession) -> None:
    assert session.conf.get("spark.authenticate") == "true"
