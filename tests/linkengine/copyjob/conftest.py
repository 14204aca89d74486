"""The pair of shared clusters that copies run between, and what the parts of one task share."""

from collections.abc import Iterator

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.background import Background
from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.buffers import BufferPool
from linkengine.copyjob.pacing import Bandwidth
from linkengine.copyjob.poller import Poller
from linkengine.copyjob.ports import SystemClock
from linkengine.domain.plans import CopyTuning


@pytest.fixture
def clusters(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> tuple[KafkaCluster, KafkaCluster]:
    """Source and destination."""
    return source_cluster, destination_cluster


@pytest.fixture
def services() -> Iterator[Services]:
    """What one task's parts share, turned by the test."""
    background, poller = Background(), Poller()
    poller.watch(background, lambda _readable, _writable: background.run_events())
    yield Services(
        background=background,
        poller=poller,
        clock=SystemClock(),
        tuning=CopyTuning(),
        pool=BufferPool(),
        bandwidth=Bandwidth(),
    )
    background.close()
    poller.close()
