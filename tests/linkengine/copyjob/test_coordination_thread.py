"""The coordination thread releases leases that are granted when the loop has ended."""

from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from linkengine.copyjob.coordination_thread import CoordinationEvents, CoordinationPorts, CoordinationThread
from linkengine.copyjob.event_loop import Background
from linkengine.copyjob.ports import SystemClock
from linkengine.domain.leases import SEEN_TRUSTED_MS
from tests.linkengine.copyjob.copying import setup_for, wait_for
from tests.linkengine.copyjob.memory import MemoryAssignments, MemoryLease, MemoryProgress
from tests.linkengine.copyjob.partitions import partition

KEY = partition().assignment.key


@pytest.fixture
def lease() -> MemoryLease:
    return MemoryLease(ttl_s=60)


@pytest.fixture
def coordination(lease: MemoryLease) -> Iterator[CoordinationThread]:
    """A coordination thread whose loop has ended: events posted to it are never run."""
    background = Background()
    ports = CoordinationPorts(lease=lease, assignments=MemoryAssignments(), progress=MemoryProgress())
    events = CoordinationEvents(assigned=Mock(), granted=Mock(), markers_announced=Mock(), lost=Mock(), paused=Mock())
    thread = CoordinationThread(setup_for(), background, ports=ports, clock=SystemClock(), events=events)
    thread.start()
    yield thread
    thread.finish()
    background.close()


@pytest.mark.parametrize(
    ("settled", "rested_ms", "seen"),
    [(True, SEEN_TRUSTED_MS, (3, 40)), (False, 0, None), (True, SEEN_TRUSTED_MS + 1, None)],
    ids=["clean", "unclean", "clean but too old"],
)
def test_lease_granted_while_the_loop_ends_is_released_unchanged(
    lease: MemoryLease, coordination: CoordinationThread, *, settled: bool, rested_ms: int, seen: tuple[int, int] | None
) -> None:
    """Otherwise the next owner would have to wait until the lease expires."""
    lease.left[KEY], lease.rested_ms = (3, 40), rested_ms
    coordination.want(KEY)
    wait_for(lambda: KEY in lease.generations)

    coordination.unwant(KEY, settled=lambda _: settled)
    coordination.finish()
    grant = lease.acquire(KEY, "next")

    assert grant is not None
    assert grant.clean is settled
    assert grant.seen == seen
