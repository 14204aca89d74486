"""Fixtures of the copy tests: the shared source and destination cluster, and the services of a link."""

from collections.abc import Callable, Iterator

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.buffers import AheadMemory, BufferPool
from linkengine.copyjob.event_loop import Background, GuardedPoller, LinkThreads, Poller
from linkengine.copyjob.pacing import Bandwidth, SystemClock
from linkengine.domain.plans import CopyTuning


@pytest.fixture
def clusters(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> tuple[KafkaCluster, KafkaCluster]:
    """Return the source and the destination cluster."""
    return source_cluster, destination_cluster


@pytest.fixture
def poller() -> Iterator[Poller]:
    """Yield the poller of the services, which the test calls."""
    poller = Poller()
    yield poller
    poller.close()


@pytest.fixture
def services(poller: Poller) -> Iterator[Services]:
    """Yield the services that the parts of a link share."""
    background = Background()
    threads = LinkThreads(background, guard=_run)
    poller.watch(background, lambda _readable, _writable: background.run_events())
    yield Services(
        background=threads,
        poller=GuardedPoller(poller, guard=_run),
        clock=SystemClock(),
        tuning=CopyTuning(),
        pool=BufferPool(),
        ahead=AheadMemory(),
        bandwidth=Bandwidth(),
    )
    threads.close()
    background.close()


def _run(event: Callable[[], None]) -> None:
    event()
