"""Spark sessions survive a restart of the server, and Spark's logs and events contain no credentials."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from devcluster.spark import SparkConnectServer
from linkengine import sparkclient
from linkengine.coordination.pool import end_workers, write_assignments
from linkengine.copyjob.spark_job import run_copy_worker
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.plans import CopyPlan, VerifyPlan
from linkengine.domain.workers import worker_id_for
from linkengine.sparkclient import (
    SparkUnavailableError,
    SparkUnresponsiveError,
    close_session,
    interrupted_after,
    session,
    tagged,
    translate_spark_errors,
)
from linkengine.verifyjob.job import run_verify
from tests.linkengine.copyjob.copying import setup_for
from tests.signing import SECRETS, SIGNER

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TIMEOUT_S = 180.0
# Threads of a fresh process that import PySpark at the same time, by all functions that need it. Prints what they raised.
IMPORTING = """
import sys
from threading import Barrier, Thread
from linkengine import sparkclient
from linkengine.copyjob import spark_job
from linkengine.domain.workers import WorkerSetup
from linkengine.verifyjob import job

def convert():
    with sparkclient.translate_spark_errors("do this"):
        pass

def compare():
    job._compare_with_fallback(None, None, {}, tag="", read_far=None)

def submit():
    setup = WorkerSetup(worker_id="0000-0", redis_url="", key="", lease_ttl_ms=1)
    spark_job.run_copy_worker(setup, spark_url="sc://127.0.0.1:1")

def call(function):
    begin.wait()
    try:
        function()
    except Exception as error:
        sys.stdout.write(f"{type(error).__name__}\\n")  # in one piece

sys.setswitchinterval(1e-5)
functions = [convert, compare, submit, sparkclient.load_pyspark] * 2
begin = Barrier(len(functions))
threads = [Thread(target=call, args=[function]) for function in functions]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
VERBOSE = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.log.level": "INFO"}


@pytest.fixture(scope="module")
def own_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    """A server that logs as much as it can, and that may be restarted."""
    home = tmp_path_factory.mktemp("verbose")
    (home / "events").mkdir()
    options = VERBOSE | {"spark.eventLog.dir": home / "events"}
    with SparkConnectServer(directory=home, port=free_port(), extra=options) as server:
        yield server


def logged(server: SparkConnectServer) -> str:
    """Return all that Spark wrote: its log, and the events of its history pages."""
    events = [path for path in (server.directory / "events").rglob("*") if path.is_file()]
    return "\n".join(Path(path).read_text(errors="replace") for path in [*events, server.directory / "spark.log"])


def test_an_unreachable_server_raises_with_its_address_and_what_to_do() -> None:
    with pytest.raises(SparkUnavailableError, match=r"127\.0\.0\.1:1.*Start it or correct its address"):
        session("sc://127.0.0.1:1")


def test_slots_are_counted_without_a_job(own_spark: SparkConnectServer) -> None:
    sparkclient.session(own_spark.url)
    jobs = logged(own_spark).count("Got job")

    assert sparkclient.count_slots(own_spark.url) == 16  # devcluster.spark.MASTER
    assert logged(own_spark).count("Got job") == jobs


def test_counting_slots_of_an_unreachable_server_raises() -> None:
    with pytest.raises(SparkUnavailableError):
        sparkclient.count_slots("sc://127.0.0.1:1")


def test_closing_a_session_that_was_never_opened_does_nothing() -> None:
    close_session("sc://127.0.0.1:1")


def test_a_new_session_is_opened_after_a_closed_one(spark_connect_url: str) -> None:
    first = session(spark_connect_url)
    assert session(spark_connect_url) is first
    close_session(spark_connect_url)

    second = session(spark_connect_url)

    assert second is not first
    assert second.range(2).count() == 2


def test_after_a_restart_of_the_server_the_next_session_works(own_spark: SparkConnectServer) -> None:
    before = session(own_spark.url)
    own_spark._process.kill()  # type: ignore[union-attr]
    with pytest.raises(SparkUnavailableError):
        session(own_spark.url)
    own_spark.start()

    after = session(own_spark.url)

    assert after is not before
    assert after.range(3).count() == 3


def test_a_job_that_takes_too_long_is_interrupted(spark_connect_url: str) -> None:
    """The job ends anyway: tasks of a job that was interrupted during planning continue and would block other tests."""
    spark = session(spark_connect_url)
    spark.range(2).selectExpr("sum(hash(id))").collect()  # planned before, so that the tasks below start at once

    with (
        pytest.raises(PySparkException, match="OPERATION_CANCELED"),
        tagged(spark, "long"),
        interrupted_after(spark, "long", timeout_s=3.0),
    ):
        spark.range(3 * 10**10).selectExpr("sum(hash(id))").collect()  # a minute on two idle cores


def test_a_hanging_server_is_detected_and_its_session_used_again_once_it_responds(
    own_spark: SparkConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_session(own_spark.url)
    monkeypatch.setattr(sparkclient, "CALL_TIMEOUT_S", 2.0)
    monkeypatch.setattr(sparkclient, "TURN_TIMEOUT_S", 0.5)
    known = until_open(own_spark)
    own_spark.pause()
    try:
        until_silent(own_spark)
        with ThreadPoolExecutor(2) as pool:
            threads = [pool.submit(session, own_spark.url) for _ in range(2)]
            messages = sorted(str(thread.exception(TIMEOUT_S)) for thread in threads)
    finally:
        own_spark.resume()

    assert "has not responded to another call" in messages[0]
    assert "accepts calls but does not respond" in messages[1]
    assert until_open(own_spark) is known
    assert known.range(3).count() == 3
    close_session(own_spark.url)  # the next session gets the usual timeout


def test_a_job_on_a_hanging_server_is_abandoned(own_spark: SparkConnectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparkclient, "INTERRUPT_TIMEOUT_S", 1.0)
    close_session(own_spark.url)
    monkeypatch.setattr(sparkclient, "CALL_TIMEOUT_S", 5.0)  # of the call that interrupts
    spark = until_open(own_spark)
    own_spark.pause()
    try:
        until_silent(own_spark)
        with (
            pytest.raises(SparkUnresponsiveError, match="did not finish the sum"),
            translate_spark_errors("finish the sum"),
            tagged(spark, "stuck"),
            interrupted_after(spark, "stuck", timeout_s=0.5),
        ):
            spark.range(3).count()
    finally:
        own_spark.resume()
    close_session(own_spark.url)


def until_silent(server: SparkConnectServer) -> None:
    """Wait until the paused server does not respond: the threads of a process stop one after the other."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            session(server.url)
        except SparkUnresponsiveError:
            return
        assert time.monotonic() < deadline


def until_open(server: SparkConnectServer) -> SparkSession:
    """Return a session; retried because a short timeout may be exceeded on a busy machine."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return session(server.url)
        except SparkUnavailableError:
            assert time.monotonic() < deadline


@pytest.mark.kafka
def test_sparks_logs_and_events_contain_no_credentials(
    own_spark: SparkConnectServer, source_cluster: KafkaCluster, redis_url: str, topic_name: str
) -> None:
    password = "open sesame " + secrets.token_hex(8)
    key = f"-----BEGIN PRIVATE KEY-----\n{secrets.token_hex(60)}\n-----END PRIVATE KEY-----"
    guarded = ClusterAddress(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SASL_SSL",
        sasl_username="u",
        sasl_password=password,
        ssl_key_pem=key,
    )
    setup = setup_for(worker_id_for(0, topic_name), redis_url=redis_url)
    plan = CopyPlan(link_id="link", revision=1, source=guarded, destination=guarded, signing_keys=SIGNER.texts())
    write_assignments(redis_url, "link", {setup.worker_id: plan}, secrets=SECRETS, applied={setup.worker_id: 1})
    end_workers(redis_url, [setup.worker_id], secrets=SECRETS)
    run_copy_worker(setup, spark_url=own_spark.url)

    admin = address_from_properties(source_cluster.client_properties("admin"))
    create_topics(source_cluster, f"{topic_name}-a", f"{topic_name}-b")
    pair = VerifyPlan(
        source=admin,
        destination=admin,
        source_topic=f"{topic_name}-a",
        mirror_topic=f"{topic_name}-b",
        ends=((0, 1),),
    )
    report = run_verify(pair, spark_url=own_spark.url)

    assert report.records_compared == 1
    text = logged(own_spark)
    assert topic_name in text  # the log does contain what Spark ran
    for secret in (password, key.splitlines()[1], source_cluster.users["admin"]):
        assert secret not in text
        assert secret[:20] not in text


def create_topics(cluster: KafkaCluster, *names: str) -> None:
    """Create topics with a record each."""
    admin = AdminClient(cluster.client("admin"))
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(30)
    producer = Producer(cluster.client("admin"))
    for name in names:
        producer.produce(name, b"value", timestamp=time.time_ns() // 1_000_000 // 60_000 * 60_000)
    assert producer.flush(30) == 0


def test_threads_import_pyspark_at_the_same_time() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert sorted(done.stdout.split()) == ["AttributeError", "AttributeError", *["SparkUnavailableError"] * 2], done.stderr
