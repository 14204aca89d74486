"""What both engines share: the clusters, Redis and Spark, and a copy of either engine on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import mirrormaker
from bench.engine import EngineCopy
from bench.submitting import Submitters
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer

HEAP = "1g"  # of each broker
MOST_TASKS = 4  # of MirrorMaker 2: each has a consumer and a producer, and there are two cores
_numbers = itertools.count(1)  # of copies: each needs producer ids, or a source's name, of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All that runs while there is measuring."""

    source: KafkaCluster
    destination: KafkaCluster
    redis: RedisServer
    submitters: Submitters

    @property
    def spark(self) -> SparkConnectServer:
        return self.submitters.spark

    def engine(self, topic: str, *, partitions: int, idle: bool = False) -> EngineCopy:
        return EngineCopy(
            clusters=(self.source, self.destination), redis=self.redis, submitters=self.submitters,
            topic=topic, partitions=partitions, number=next(_numbers), idle=idle,
        )  # fmt: skip

    def mirrormaker(self, topic: str, *, partitions: int, batch_bytes: int, codec: str) -> mirrormaker.MirrorMaker:
        tasks = min(partitions, MOST_TASKS)
        return mirrormaker.MirrorMaker(
            mirrormaker.settings(
                self.source,
                self.destination,
                number=next(_numbers),
                topic=topic,
                partitions=tasks,
                batch_bytes=batch_bytes,
                codec=codec,
            )
        )


@contextmanager
def open_stage() -> Iterator[Stage]:
    """Start everything; nothing is left of it afterwards."""
    with ExitStack() as stack:
        yield Stage(
            source=stack.enter_context(KafkaCluster("bench-source", heap=HEAP)),
            destination=stack.enter_context(KafkaCluster("bench-destination", heap=HEAP)),
            redis=stack.enter_context(RedisServer()),
            submitters=stack.enter_context(Submitters.to(stack.enter_context(SparkConnectServer()))),
        )
