"""The pair of shared clusters that copies run between, and what the parts of one link share."""

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.background import Background, LinkThreads
from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.buffers import AheadMemory, BufferPool
from linkengine.copyjob.pacing import Bandwidth
from linkengine.copyjob.poller import GuardedPoller, Poller
from linkengine.copyjob.ports import SystemClock
from linkengine.domain.plans import CopyTuning


@pytest.fixture
def clusters(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> tuple[KafkaCluster, KafkaCluster]:
    """Source and destination."""
    return source_cluster, destination_cluster


@pytest.fixture
def services() -> Iterator[Services]:
    """What one link's parts share, turned by the test."""
    background, poller = Background(), Poller()
    room = LinkThreads(background, guard=_at_once)
    poller.watch(background, lambda _readable, _writable: background.run_events())
    yield Services(
        background=room,
        poller=cast(GuardedPoller, poller),
        clock=SystemClock(),
        tuning=CopyTuning(),
        pool=BufferPool(),
        ahead=AheadMemory(),
        bandwidth=Bandwidth(),
    )
    room.close()
    background.close()
    poller.close()


def _at_once(event: Callable[[], None]) -> None:
    event()
