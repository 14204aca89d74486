"""Failover of a thousand topics by the whole product: web process, worker, beat, REST, on the clusters of the benchmark.

Measured from outside, starting with the request: until its response, until an ordinary producer, which every topic refused
before, has written a record to each topic, and until REST shows all mirrors as STOPPED.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer

from bench.figures import Figure
from bench.load import create_topics
from devcluster.demo import services
from devcluster.demo.rest import Rest
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer

NAME = "thousand topics"
TOPICS = 1_000
PREFIX, LINK = "bench-many-", "bench-many"
MOST_TO_ACCEPT_S, MOST_TO_WRITABLE_S = 1.0, 10.0
_MIRROR_TIMEOUT_S, _STOP_TIMEOUT_S = 420.0, 120.0
_LONG_POLL_S, _POLL_S = 2.0, 0.2  # a list of a thousand mirrors takes processor time from the measured processes


def measure_product(
    source: KafkaCluster, destination: KafkaCluster, *, redis: RedisServer, spark: SparkConnectServer
) -> list[Figure]:
    """Mirror all topics, fail them over with a single request, write to each of them."""
    create_topics(source, _names())
    _wait(lambda: not _refused(source, _names()), _STOP_TIMEOUT_S, "writable at the source")
    clusters = {"source": source, "destination": destination}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rest = stack.enter_context(_running(clusters, directory=directory, redis=redis, spark=spark))
        path = f"/kafka/v3/clusters/{destination.cluster_id}/links"
        began = time.monotonic()
        _mirror_all(rest, path, source)
        mirrored_s = time.monotonic() - began
        if len(_refused(destination, _names())) != TOPICS:
            raise RuntimeError("A mirror topic takes records of others than its link")
        began = time.monotonic()
        response = rest.post(f"{path}/{LINK}/mirrors:failover", {"mirror_topic_name_pattern": f"{PREFIX}.*"})
        accepted_s = time.monotonic() - began
        refused = [result for result in response["data"] if result.get("error_code") is not None]
        if refused or len(response["data"]) != TOPICS:
            raise RuntimeError(f"{len(response['data'])} topics in the response, refused: {refused[:3]}")
        _wait_until_writable(destination)
        writable_s = time.monotonic() - began
        _wait(lambda: _stopped(rest, path) == TOPICS, _STOP_TIMEOUT_S, "shown as stopped")
        shown_s = time.monotonic() - began
    unit, many = "s", f"{TOPICS:,} topics"
    return [
        Figure(what=f"{many} found by a filter, created and copied", unit=unit, found=mirrored_s, digits=1),
        Figure(what=f"failover of {many} accepted", unit=unit, found=accepted_s, goal=MOST_TO_ACCEPT_S, most=True, digits=2),
        Figure(
            what=f"failover of {many}: all writable", unit=unit, found=writable_s, goal=MOST_TO_WRITABLE_S, most=True, digits=1
        ),
        Figure(what=f"failover of {many}: all shown as STOPPED", unit=unit, found=shown_s, digits=1),
    ]


@contextmanager
def _running(
    clusters: Mapping[str, KafkaCluster], *, directory: Path, redis: RedisServer, spark: SparkConnectServer
) -> Iterator[Rest]:
    console = services.plan_console(directory, redis_url=redis.url, spark_url=spark.url)
    key = services.prepare(console, user="admin", password="not used, only the key is")
    started = services.start_services(console, reload=False)
    try:
        services.wait_ready(console, started)
        for name, cluster in clusters.items():  # a worker probes them
            services.register_cluster(console, name=name, properties=cluster.client_properties("link"))
        yield Rest(base_url=console.base_url, key=key["api_key"], secret=key["api_secret"])
    finally:
        for service in started:
            service.stop()


def _mirror_all(rest: Rest, path: str, source: KafkaCluster) -> None:
    filters = {"topicFilters": [{"name": PREFIX, "patternType": "PREFIXED", "filterType": "INCLUDE"}]}
    configs = {
        **source.client_properties("link"),
        "auto.create.mirror.topics.enable": "true",
        "auto.create.mirror.topics.filters": json.dumps(filters),
        "verify.continuous.enable": "false",
    }
    body = {
        "source_cluster_id": source.cluster_id,
        "configs": [{"name": name, "value": value} for name, value in configs.items()],
    }
    rest.post(f"{path}?link_name={LINK}", body)
    _wait(lambda: _copied(rest, path) == TOPICS, _MIRROR_TIMEOUT_S, "mirrored", poll_s=_LONG_POLL_S)


def _copied(rest: Rest, path: str) -> int:
    """Return the number of mirrors without lag."""
    mirrors = rest.get(f"{path}/{LINK}/mirrors?mirror_status=ACTIVE")["data"]
    return sum(1 for mirror in mirrors if mirror["mirror_lags"] and all(lag["lag"] == 0 for lag in mirror["mirror_lags"]))


def _stopped(rest: Rest, path: str) -> int:
    """Return the number of STOPPED mirrors, the only state of this category; a list of all would slow down the failover."""
    counts = rest.get(f"{path}/{LINK}")["category_counts"]
    return sum(item["count"] for item in counts if item["state_category"] == "NOT_APPLICABLE")


def _wait(done: Callable[[], bool], timeout_s: float, what: str, *, poll_s: float = _POLL_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{TOPICS:,} topics were not {what} within {timeout_s:.0f} s")
        time.sleep(poll_s)


def _names() -> list[str]:
    return [f"{PREFIX}{number:04}" for number in range(TOPICS)]


def _wait_until_writable(cluster: KafkaCluster) -> None:
    """Write to the last topic until it accepts a record, then to all; retry the topics that refuse."""
    names = _names()
    _wait(lambda: not _refused(cluster, names[-1:]), _STOP_TIMEOUT_S, "writable")
    left = [names]

    def all_accepted() -> bool:
        left[0] = _refused(cluster, left[0])
        return not left[0]

    _wait(all_accepted, _STOP_TIMEOUT_S, "writable")


def _refused(cluster: KafkaCluster, names: Sequence[str]) -> list[str]:
    """Write a record to each topic; return the topics that refuse it, raise RuntimeError after any other error.

    Each call has a new producer, because a refused producer caches the refusal for a while.
    """
    producer = Producer({**cluster.client("app"), "message.timeout.ms": 60_000})
    refused: list[str] = []
    errors: list[Any] = []

    def note(error: KafkaError | None, message: Any) -> None:
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            refused.append(message.topic())
        elif error is not None:
            errors.append(error)

    for name in names:
        producer.produce(name, b"a record", on_delivery=note)
    if producer.flush(_STOP_TIMEOUT_S) or errors:
        raise RuntimeError(f"Some topics are not writable: {errors[:3]}")
    return refused
