"""Fifty links with one mirror each on one copy worker, 100 records/s each: latency and longest gap."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from bench.calm import Stolen
from bench.engine import SECRETS, SIGNER
from bench.figures import Figure
from bench.load import delete_topic
from bench.measure import cpu_times
from bench.submitting import Submitters
from devcluster.access import admin_client
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.plans import CopyPlan, CopyTuning, PartitionAssignment, producer_id_for
from linkengine.domain.workers import worker_id_for

NAME = "fifty links"
LINKS, RATE, BATCH = 50, 100, 10  # records/s of each link, in batches of so many
SETTLE_S, SECONDS, LATE_S = 15.0, 30.0, 2.0
MOST_P99_MS, MOST_GAP_S = 50.0, 1.0
RELEASE_TIMEOUT_S = 30
STAMP = 17
_NUMBERS = 500_000  # of mirrors: producer ids of their own


@dataclass(frozen=True, slots=True)
class _Arrival:
    topic: str
    sent_ms: float
    came_ms: float


def measure_many_links(
    source: KafkaCluster, destination: KafkaCluster, *, redis: RedisServer, submitters: Submitters, links: int = LINKS
) -> list[Figure]:
    """Write to all links concurrently and read all mirrors; then the same while the source of another link is frozen."""
    clusters = (source, destination)
    found = _measure(clusters, redis=redis, submitters=submitters, links=links)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:  # accepts connections and never responds
        frozen = ClusterAddress(bootstrap_servers="{}:{}".format(*server.getsockname()), security_protocol="PLAINTEXT")
        return found + _measure(clusters, redis=redis, submitters=submitters, links=links, frozen=frozen)


def _measure(
    clusters: tuple[KafkaCluster, KafkaCluster],
    *,
    redis: RedisServer,
    submitters: Submitters,
    links: int,
    frozen: ClusterAddress | None = None,
) -> list[Figure]:
    source, destination = clusters
    topics = [f"bench-link-{'f' if frozen else 'a'}{number:02}" for number in range(links)]
    admin = admin_client(source)
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(timeout=60)
    stop = threading.Event()
    with _copying(clusters, topics, redis=redis, submitters=submitters, frozen=frozen):
        writer = threading.Thread(target=_write, args=(source, topics, stop), daemon=True)
        consumer = Consumer({**destination.client(), "group.id": "bench-links", "fetch.wait.max.ms": 10})
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        writer.start()
        try:
            _read(consumer, until_s=time.monotonic() + SETTLE_S)
            stolen, before, began_ms = Stolen(), cpu_times(submitters.pid).python_s, time.time() * 1000
            found = _read(consumer, until_s=time.monotonic() + SECONDS)
            cores = (cpu_times(submitters.pid).python_s - before) / SECONDS
            taken, ended_ms = stolen.share(), time.time() * 1000
            found += _read(consumer, until_s=time.monotonic() + LATE_S)
        finally:
            stop.set()
            writer.join(timeout=10)
            consumer.close()
    for topic in topics:
        delete_topic(source, topic)
        delete_topic(destination, topic)
    what = f"{links} links on one copy worker, {RATE} records/s each in batches of {BATCH}"
    what += ", and one with a frozen source" if frozen else ""
    return _figures([arrival for arrival in found if began_ms <= arrival.sent_ms < ended_ms], what, cores=cores, stolen=taken)


def _figures(found: Sequence[_Arrival], what: str, *, cores: float, stolen: float) -> list[Figure]:
    delays = sorted(arrival.came_ms - arrival.sent_ms for arrival in found)
    if not delays:
        raise RuntimeError(f"{what}: no record of the counted time came through")
    return [
        Figure(what=f"{what}: p50", unit="ms", found=delays[len(delays) // 2], digits=1),
        Figure(what=f"{what}: p99", unit="ms", found=delays[len(delays) * 99 // 100], goal=MOST_P99_MS, most=True, digits=1),
        Figure(what=f"{what}: worst", unit="ms", found=delays[-1], digits=1),
        Figure(
            what=f"{what}: longest gap of a link", unit="s", found=_longest_gap_s(found), goal=MOST_GAP_S, most=True, digits=2
        ),
        Figure(what=f"{what}: records that came", unit="records/s", found=len(delays) / SECONDS),
        Figure(what=f"{what}: copy worker", unit="cores", found=cores, digits=2),
        Figure(what=f"{what}: stolen by the host", unit="%", found=100 * stolen, digits=2),
    ]


def _longest_gap_s(found: Sequence[_Arrival]) -> float:
    last: dict[str, float] = {}
    longest = 0.0
    for arrival in sorted(found, key=attrgetter("came_ms")):
        longest = max(longest, arrival.came_ms - last.get(arrival.topic, arrival.came_ms))
        last[arrival.topic] = arrival.came_ms
    return longest / 1000


@contextmanager
def _copying(
    clusters: tuple[KafkaCluster, KafkaCluster],
    topics: Sequence[str],
    *,
    redis: RedisServer,
    submitters: Submitters,
    frozen: ClusterAddress | None,
) -> Iterator[None]:
    """Copy each topic over a link of its own, all by one copy worker."""
    worker = worker_id_for(0, uuid.uuid4().hex[:12])
    source, destination = (address_from_properties(cluster.client_properties("link")) for cluster in clusters)
    tuning = CopyTuning()
    for number, topic in enumerate(topics, _NUMBERS):
        link = f"bench-link-{number}"
        setup = MirrorSetup(
            link_id=link, mirror_id=str(number), source=source, destination=destination, source_topic=topic, mirror_topic=topic
        )

        def assignments(
            count: int, topic_id: str, *, number: int = number, topic: str = topic
        ) -> tuple[PartitionAssignment, ...]:
            return tuple(
                PartitionAssignment(
                    mirror_id=str(number), partition=partition, source_topic=topic, mirror_topic=topic,
                    source_topic_id=topic_id, producer_id=producer_id_for(0, number, partition),
                )
                for partition in range(count)
            )  # fmt: skip

        created = jobs.setup_mirror(setup, assignments_factory=assignments)
        plan = CopyPlan(
            link_id=link, revision=1, source=source, destination=destination, tuning=tuning,
            assignments=assignments(1, created.source_topic_id), signing_keys=SIGNER.texts(),
        )  # fmt: skip
        jobs.write_assignments(redis.url, link, {worker: plan}, secrets=SECRETS)
    if frozen is not None:
        others = tuple(replace(assignment, mirror_id=f"frozen-{assignment.mirror_id}") for assignment in plan.assignments)
        stuck = replace(plan, link_id="bench-link-frozen", source=frozen, assignments=others)
        jobs.write_assignments(redis.url, stuck.link_id, {worker: stuck}, secrets=SECRETS)
    job = submitters.run_worker(
        jobs.setup_worker(worker, redis_url=redis.url, secrets=SECRETS, lease_ttl_ms=tuning.lease_ttl_ms)
    )
    try:
        yield
    finally:
        jobs.end_workers(redis.url, [worker], secrets=SECRETS)
        job.result(timeout=RELEASE_TIMEOUT_S)


def _write(source: KafkaCluster, topics: Sequence[str], stop: threading.Event) -> None:
    """Write a batch to each topic in turn, evenly over time. With a request per record the writer would be the bottleneck."""
    producer = Producer({**source.client(), "linger.ms": 0, "acks": "all"})
    due, number = time.monotonic(), 0
    while not stop.is_set():
        for _ in range(BATCH):
            producer.produce(topics[number % len(topics)], f"{time.time() * 1000:.3f}".ljust(20))
        producer.poll(0)
        number += 1
        due += BATCH / RATE / len(topics)
        time.sleep(max(0.0, due - time.monotonic()))
    producer.flush(10)


def _read(consumer: Consumer, *, until_s: float) -> list[_Arrival]:
    found: list[_Arrival] = []
    while time.monotonic() < until_s:
        for message in consumer.consume(1_000, 0.005):
            if message.error() is None:
                sent_ms = float((message.value() or b"")[:STAMP])
                found.append(_Arrival(message.topic() or "", sent_ms, time.time() * 1000))
    return found
