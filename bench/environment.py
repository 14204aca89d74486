"""The environment of both engines: clusters, Redis and Spark, and a copy by either engine on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TypedDict

from bench import mirrormaker
from bench.engine import EngineCopy
from bench.submitting import Submitters
from bench.workloads import DELAY_MS
from devcluster.distance import Distance
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer

HEAP = "3g"  # of each broker: with 10,000 partitions, 1 GB is filled by them, and the broker does nothing but collect garbage
MOST_TASKS = 4  # of MirrorMaker 2: each has a consumer and a producer, and there are two cores
_numbers = itertools.count(1)  # of copies: each needs its own producer ids, or its own name of the source


class ForProduct(TypedDict):
    """Arguments of a measurement of the whole product."""

    redis: RedisServer
    spark: SparkConnectServer


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEnvironment:
    """Everything that runs during the measurements."""

    source: KafkaCluster
    destination: KafkaCluster
    redis: RedisServer
    submitters: Submitters
    distant: bool = False  # both engines reach the source through proxies that delay

    @property
    def spark(self) -> SparkConnectServer:
        return self.submitters.spark

    @property
    def clusters(self) -> tuple[KafkaCluster, KafkaCluster]:
        """Return source and destination."""
        return self.source, self.destination

    @property
    def for_product(self) -> ForProduct:
        """Return what the whole product needs besides the clusters, as arguments."""
        return {"redis": self.redis, "spark": self.spark}

    @contextmanager
    def seen_from(self, in_flight: int) -> Iterator[BenchEnvironment]:
        """Yield the environment with a distant source; ``in_flight`` bytes per connection, 0 for the source as it is."""
        if not in_flight:
            yield self
            return
        with Distance(self.source.routes, delay_ms=DELAY_MS, in_flight=in_flight):
            yield replace(self, distant=True)

    @property
    def source_properties(self) -> dict[str, str]:
        """Return the client properties with which the engines connect to the source."""
        return self.source.proxied_properties("link") if self.distant else self.source.client_properties("link")

    def engine(self, topic: str, *, partitions: int, idle: bool = False) -> EngineCopy:
        return EngineCopy(
            source=self.source_properties, destination=self.destination, redis=self.redis, submitters=self.submitters,
            topic=topic, partitions=partitions, number=next(_numbers), idle=idle,
        )  # fmt: skip

    def mirrormaker(self, topic: str, *, partitions: int, batch_bytes: int, codec: str) -> mirrormaker.MirrorMaker:
        tasks = min(partitions, MOST_TASKS)
        return mirrormaker.MirrorMaker(
            mirrormaker.settings(
                self.source_properties,
                self.destination,
                number=next(_numbers),
                topic=topic,
                partitions=tasks,
                batch_bytes=batch_bytes,
                codec=codec,
            )
        )


@contextmanager
def open_environment() -> Iterator[BenchEnvironment]:
    """Start everything, and remove it at the end."""
    with ExitStack() as stack:
        yield BenchEnvironment(
            source=stack.enter_context(KafkaCluster("bench-source", heap=HEAP).behind_proxy()),
            destination=stack.enter_context(KafkaCluster("bench-destination", heap=HEAP)),
            redis=stack.enter_context(RedisServer()),
            submitters=stack.enter_context(Submitters.to(stack.enter_context(SparkConnectServer()))),
        )
