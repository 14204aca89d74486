"""The coordination thread: leases that are granted when the loop has ended, and a slow Redis."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import Mock

import pytest

from linkengine.copyjob.coordination_thread import CoordinationEvents, CoordinationPorts, CoordinationThread
from linkengine.copyjob.event_loop import Background
from linkengine.copyjob.pacing import SystemClock
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.workers import SEEN_TRUSTED_MS, Grant, Heartbeat
from tests.linkengine.copyjob.copying import setup_for, wait_for
from tests.linkengine.copyjob.memory import MemoryAssignments, MemoryLease, MemoryProgress
from tests.linkengine.copyjob.partitions import partition

KEY = partition().assignment.key
LINKS = 50
SLOW_S = 0.01  # of each report, as with a busy Redis


@pytest.fixture
def lease() -> MemoryLease:
    return MemoryLease(ttl_s=60)


@pytest.fixture
def coordination(lease: MemoryLease) -> Iterator[CoordinationThread]:
    """A coordination thread whose loop has ended: events posted to it are never run."""
    with coordinating(lease, MemoryAssignments(), MemoryProgress()) as thread:
        yield thread


@contextmanager
def coordinating(lease: MemoryLease, assignments: MemoryAssignments, progress: MemoryProgress) -> Iterator[CoordinationThread]:
    background = Background()
    ports = CoordinationPorts(lease=lease, assignments=assignments, progress=progress)
    events = CoordinationEvents(assigned=Mock(), granted=Mock(), markers_announced=Mock(), lost=Mock(), paused=Mock())
    setup = setup_for(lease_ttl_ms=int(lease.ttl_s * 1000))
    thread = CoordinationThread(setup, background, ports=ports, clock=SystemClock(), events=events)
    thread.start()
    yield thread
    thread.finish()
    background.close()


class SlowProgress(MemoryProgress):
    """Reports that take a while, with their number."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        time.sleep(SLOW_S)
        self.requests += 1
        super().report(link_id, observations)


def report_on(link: int, at_ms: int, *, run: str = "r", phase: PartitionPhase = PartitionPhase.COPYING) -> PartitionProgress:
    return PartitionProgress(key=f"{link}/0", copy_run_id=run, phase=phase, observed_at_ms=at_ms)


@pytest.mark.parametrize(
    ("settled", "rested_ms", "seen"),
    [(True, SEEN_TRUSTED_MS, (3, 40)), (False, 0, None), (True, SEEN_TRUSTED_MS + 1, None)],
    ids=["clean", "unclean", "clean but too old"],
)
def test_lease_granted_while_the_loop_ends_is_released_unchanged(
    lease: MemoryLease, coordination: CoordinationThread, *, settled: bool, rested_ms: int, seen: tuple[int, int] | None
) -> None:
    """Otherwise the next owner would have to wait until the lease expires."""
    lease.seen[KEY], lease.rested_ms = (3, 40), rested_ms
    coordination.acquire(KEY)
    wait_for(lambda: KEY in lease.generations)

    coordination.stop_acquiring(KEY, settled=lambda _: settled)
    coordination.finish()
    (grant,) = lease.acquire_all([KEY], "next")

    assert grant.clean is settled
    assert grant.seen == seen


def test_leases_are_renewed_and_heartbeats_sent_in_time_while_reports_are_slow() -> None:
    """50 links report ten times a second, five times as much as can be published."""
    lease, assignments, progress = MemoryLease(ttl_s=4.0), MemoryAssignments(), SlowProgress()
    with coordinating(lease, assignments, progress) as coordination:
        coordination.acquire(KEY)
        wait_for(lambda: KEY in lease.generations)
        grant = Grant(key=KEY, generation=1, clean=True, valid_until=0.0)
        left_s, late_s = list[float](), list[int]()
        began = time.monotonic()
        for number in range(60):
            for link in range(LINKS):
                coordination.report(f"link-{link}", [report_on(link, number)])
            coordination.beat(Heartbeat(worker_id="w", started_at_ms=number))
            for _ in range(10):
                time.sleep(0.01)
                left_s.append(lease.deadline(grant) - time.monotonic())
            late_s.append(number - assignments.beats[-1].started_at_ms)
        took_s = time.monotonic() - began

    assert min(left_s) > 0.8  # renewed every second, to 3.6 s
    assert max(late_s) <= 15  # heartbeats behind, of 60
    assert {seen.observed_at_ms for seen in progress.latest.values()} == {59}
    assert len(progress.latest) == LINKS
    assert progress.requests <= took_s / SLOW_S + LINKS  # what was not published at the end is one request per link


def test_last_reports_are_published_before_the_last_heartbeat() -> None:
    assignments, progress = MemoryAssignments(), SlowProgress()
    with coordinating(MemoryLease(), assignments, progress) as coordination:
        for link in range(LINKS):
            coordination.report(f"link-{link}", [report_on(link, 1)])
        coordination.beat(Heartbeat(worker_id="w"))
        coordination.beat(Heartbeat(worker_id="w", ended=True))
        wait_for(lambda: assignments.beats and assignments.beats[-1].ended)
        assert progress.requests == LINKS


def test_last_report_of_a_copy_run_is_not_replaced_by_the_next_run() -> None:
    """A reader compares where the previous run ended with where the next run began."""
    progress = SlowProgress()
    with coordinating(MemoryLease(), MemoryAssignments(), progress) as coordination:
        coordination.report("other", [report_on(9, 0)])  # keeps the thread busy
        coordination.report("link", [report_on(0, 1)])
        coordination.report("link", [report_on(0, 2, phase=PartitionPhase.RELEASED)])
        coordination.report("link", [report_on(0, 3, run="next", phase=PartitionPhase.WAITING)])

    phases = [phase for key, phase, _ in progress.history if key == "0/0"]
    assert phases[-2:] == [PartitionPhase.RELEASED, PartitionPhase.WAITING]
