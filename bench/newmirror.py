"""A new mirror on a running link of the whole product: from the REST call to the first record in the mirror topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from confluent_kafka import Producer

from bench.figures import Figure
from bench.load import create_topics, discard_topics
from bench.measure import ends_of
from bench.whole import Product, running, wait_for
from devcluster.access import admin_client
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer

NAME = "new mirror on a running link"
TIMES = 5
MOST_FIRST_S = 1.0
LINK, TOPICS = "bench-new", [f"bench-new-{number}" for number in range(TIMES + 1)]
_SETTLE_S, _POLL_S, _TIMEOUT_S = 10.0, 0.01, 60.0


def measure_new_mirror(source: KafkaCluster, destination: KafkaCluster) -> Iterator[Figure]:
    """Create a mirror, so that a copy worker runs, then several more, one after the other.

    Spark is started for it: a copy worker runs on for an hour without the console, and would disturb later measurements.
    """
    create_topics(source, TOPICS)
    _write(source)
    try:
        with (
            RedisServer() as redis,
            SparkConnectServer() as spark,
            running(source=source, destination=destination, redis=redis, spark=spark) as product,
        ):
            product.create_link(LINK, source)
            _create(product, destination, TOPICS[0])
            wait_for(lambda: product.copied() == 1, "the first mirror copied")
            times = []
            for topic in TOPICS[1:]:
                time.sleep(_SETTLE_S)
                times.append(_create(product, destination, topic))
    finally:
        for cluster in (source, destination):
            discard_topics(cluster, TOPICS)
    exists, after, total = ([row[number] for row in times] for number in range(3))
    steps = (
        ("from the REST call until its topic exists", exists, None),
        ("from its topic to the first record", after, MOST_FIRST_S),
        ("from the REST call to the first record", total, None),
    )
    for what, found, goal in steps:
        yield Figure(what=f"new mirror, {what}, median of {TIMES}", unit="s", found=median(found), digits=2)
        yield Figure(what=f"new mirror, {what}, longest", unit="s", found=max(found), goal=goal, most=True, digits=2)


def _create(product: Product, destination: KafkaCluster, topic: str) -> tuple[float, float, float]:
    """Create a mirror; return seconds from the call to the topic, from the topic to the first record, and their sum."""
    admin = admin_client(destination)

    def until(done: Callable[[], bool]) -> float:
        while not done():
            if time.monotonic() - began > _TIMEOUT_S:
                raise TimeoutError(f"{topic} has no record after {_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)
        return time.monotonic()

    with ThreadPoolExecutor(1) as threads:
        began = time.monotonic()
        response = threads.submit(product.rest.post, f"{product.links}/{LINK}/mirrors", {"source_topic_name": topic})
        exists = until(lambda: topic in admin.list_topics(timeout=10).topics)
        first = until(lambda: sum(ends_of(admin, topic, partitions=1)) > 0)
        response.result()
    return exists - began, first - exists, first - began


def _write(source: KafkaCluster) -> None:
    producer = Producer(source.client())
    for topic in TOPICS:
        producer.produce(topic, b"a record", partition=0)
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("The source did not accept a record per topic.")
