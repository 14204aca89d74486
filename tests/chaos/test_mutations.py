"""The judge detects each missing safeguard of the engine, and finds nothing with all safeguards.

Each test is the smallest sequence of events that needs the safeguard: requests of a copy worker are held in the network until
another owner has taken over.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from chaos import judge
from chaos.environment import ChaosEnvironment, Side
from chaos.loops import LoopEngine
from chaos.reading import Ends, read_topic
from chaos.watch import Watch
from chaos.writers import open_transaction
from linkengine.domain.plans import CopyTuning

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TIMEOUT_S = 180.0
LEASE_MS = 500
RECORD_BYTES = 1_000  # many times the size of a metadata request
QUIET_S = 2.0  # time in which a copy worker on a busy machine sends what it has read
COPY_S = 300.0
SHORT_S = 1.2  # shorter than the wait before the first marker after a dead owner
TUNING = CopyTuning(lease_ttl_ms=LEASE_MS, request_timeout_ms=120_000, progress_ms=100)  # held requests do not time out


def _has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid)


class MutatedRun:
    """A topic with a single partition between two small clusters, and copy workers that are started by hand."""

    def __init__(self, environment: ChaosEnvironment, topic: str, mutation: str) -> None:
        self.environment, self.topic = environment, topic
        self.engine = LoopEngine(environment, {topic: 1}, mutation=mutation, tuning=TUNING)
        self._ends = {side: Ends(side.cluster.client(), {topic: 1}) for side in (environment.source, environment.destination)}

    def start_copier(self) -> int:
        return self.engine.start_copier(seconds=COPY_S)

    def run_short_owner(self, generation: int) -> None:
        """Another owner acquires the lease and releases it before it may send a marker."""
        name = f"generation:{{{self.engine.assignments[self.topic][0].key}}}"
        with self.environment.client() as client:
            while int(str(client.hget(name, "generation"))) < generation:  # a slow machine may end it before it has the lease
                pid = self.engine.start_copier(seconds=SHORT_S)
                self.until(partial(_has_ended, pid))

    def write(self, count: int, *, side: Side | None = None) -> None:
        """Write records of 1 KB, one batch per call."""
        producer = Producer({**(side or self.environment.source).cluster.client(), "linger.ms": 50})
        for number in range(count):
            producer.produce(self.topic, value=f"{time.monotonic_ns()}-{number}".ljust(RECORD_BYTES, "."))
        assert producer.flush(TIMEOUT_S) == 0

    def write_aborted(self, count: int) -> None:
        with self.open_transaction(count):
            pass

    def open_transaction(self, count: int) -> AbstractContextManager[None]:
        """Write records to the source that are aborted when the block ends."""
        return open_transaction(self.environment.source.cluster.client(), self.topic, records=count)

    def end(self, side: Side) -> int:
        return int(self.until(self._ends[side].all)[self.topic, 0])

    def caught_up(self) -> bool:
        return self.end(self.environment.destination) >= self.end(self.environment.source)

    def hold_sent_requests(self, send: Callable[[], None], *, least: int = 1) -> None:
        """Hold the present connections, and wait until the copy worker has sent at least ``least`` bytes over them.

        Waits first until the worker has every acknowledgement: nothing follows a first append whose response is held.
        """
        self.until(self.caught_up)
        end = self.end(self.environment.source)
        self.until(lambda: any(seen.mirror_end == end for seen in self.engine.reports()))
        self.environment.destination.proxy.hold()
        send()
        proxy, held, deadline = self.environment.destination.proxy, 0, time.monotonic() + TIMEOUT_S
        while proxy.held_bytes > held or held < least:  # metadata requests are held as well; what was to be sent follows
            assert time.monotonic() < deadline, f"only {held} bytes were sent"
            held = self.until(lambda: proxy.held_bytes)
            time.sleep(QUIET_S)

    def findings(self, *, ends: dict[int, int] | None = None) -> list[str]:
        source, mirror = (
            read_topic(side.cluster.client(), self.topic, partitions=1, committed=True)
            for side in (self.environment.source, self.environment.destination)
        )
        return [finding.kind for finding in judge.compare(self.topic, source, mirror, ends=ends)]

    def end_findings(self, expected: int) -> list[str]:
        place = (self.topic, 0)
        return [
            finding.kind for finding in judge.check_ends({place: expected}, {place: self.end(self.environment.destination)})
        ]

    @staticmethod
    def until(condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := condition()):
            assert time.monotonic() < deadline, "the condition did not become true in time"
            time.sleep(0.05)
        return found


@contextmanager
def copying(environment: ChaosEnvironment, topic: str, mutation: str) -> Iterator[MutatedRun]:
    mutated = MutatedRun(environment, topic, mutation)
    try:
        yield mutated
    finally:
        environment.heal()
        mutated.engine.copiers.close()


@pytest.mark.parametrize("mutation", ["", "sequences"])
def test_without_sequences_a_late_batch_is_appended_twice(
    small_environment: ChaosEnvironment, topic_name: str, mutation: str
) -> None:
    with copying(small_environment, topic_name, mutation) as mutated:
        first = mutated.start_copier()
        mutated.write(10)
        mutated.hold_sent_requests(lambda: mutated.write(10), least=10 * RECORD_BYTES)
        mutated.engine.copiers.kill(first)
        mutated.start_copier()
        mutated.until(mutated.caught_up)

        small_environment.destination.proxy.release()
        if mutation:
            mutated.until(lambda: mutated.end(small_environment.destination) >= 30)
        time.sleep(1.0)  # held requests are in flight again; a refused request leaves no trace to wait for
        findings = mutated.findings()

    assert findings == (["extra"] * 10 if mutation else [])


@pytest.mark.parametrize("mutation", ["", "offsets"])
def test_without_a_check_of_offsets_records_move_behind_a_foreign_write(
    small_environment: ChaosEnvironment, topic_name: str, mutation: str
) -> None:
    with copying(small_environment, topic_name, mutation) as mutated:
        mutated.start_copier()
        mutated.write(10)
        mutated.until(mutated.caught_up)
        mutated.write(1, side=small_environment.destination)  # as the administrator, whom no ACL denies
        mutated.write(5)
        key = mutated.engine.assignments[topic_name][0].key
        if mutation:
            mutated.until(lambda: mutated.end(small_environment.destination) >= 16)
        else:
            mutated.until(lambda: mutated.engine.phases()[key] == "FOREIGN_WRITE")
        mutated.write(5)
        if mutation:
            mutated.until(lambda: mutated.end(small_environment.destination) >= 21)
        time.sleep(1.0)  # for a copy worker that should have stopped
        findings, phase = mutated.findings(), mutated.engine.phases()[key]
        failures = [str(failure) for failure in mutated.engine.failures()]

    # a broker accepts what is in flight before the foreign write can be detected; without mutation nothing is sent afterwards
    if mutation:
        assert findings == ["changed"] * 10 + ["extra"]
    else:
        assert set(findings) == {"changed", "missing"}
        assert findings.count("missing") >= 4
    assert phase == ("COPYING" if mutation else "FOREIGN_WRITE")
    assert len(failures) == (0 if mutation else 1)  # without foreign writes, a FAILED mirror would be a finding
    assert all("FOREIGN_WRITE" in failure for failure in failures)


@pytest.mark.parametrize("mutation", ["", "commits"])
def test_the_watch_finds_a_mirror_beyond_what_is_committed(
    small_environment: ChaosEnvironment, topic_name: str, mutation: str
) -> None:
    with copying(small_environment, topic_name, mutation) as mutated:
        watch = Watch(small_environment, {topic_name: 1})
        mutated.start_copier()
        mutated.write(10)
        mutated.until(mutated.caught_up)
        with mutated.open_transaction(5):
            watch.start()
            if mutation:
                mutated.until(lambda: watch.findings)
            else:
                mutated.until(lambda: watch.samples > 5)
            watch.stop()

    assert not watch.error
    assert {(found.kind, found.offset) for found in watch.findings} == ({("ahead", 15)} if mutation else set())


@pytest.mark.parametrize("mutation", ["", "fence"])
def test_without_a_fence_a_late_batch_is_appended_to_a_stopped_mirror(
    small_environment: ChaosEnvironment, topic_name: str, mutation: str
) -> None:
    with copying(small_environment, topic_name, mutation) as mutated:
        first = mutated.start_copier()
        mutated.write(10)
        mutated.hold_sent_requests(lambda: mutated.write(10), least=10 * RECORD_BYTES)
        mutated.engine.copiers.kill(first)
        mutated.engine.fail_over(topic_name)

        small_environment.destination.proxy.release()
        if mutation:
            mutated.until(lambda: mutated.end(small_environment.destination) >= 20)
        time.sleep(1.0)
        findings = mutated.findings(ends=mutated.engine.stopped(topic_name))

    assert findings == (["extra"] * 10 if mutation else [])


@pytest.mark.parametrize("mutation", ["", "epochs"])
def test_without_raised_epochs_late_markers_shift_the_records_behind_them(
    small_environment: ChaosEnvironment, topic_name: str, mutation: str
) -> None:
    with copying(small_environment, topic_name, mutation) as mutated:
        first = mutated.start_copier()
        mutated.write(10)
        mutated.hold_sent_requests(lambda: mutated.write_aborted(5))
        mutated.engine.copiers.kill(first)
        mutated.start_copier()
        mutated.until(mutated.caught_up)

        small_environment.destination.proxy.release()
        if mutation:
            mutated.until(lambda: mutated.end_findings(mutated.end(small_environment.source)))
        time.sleep(1.0)
        findings = mutated.end_findings(mutated.end(small_environment.source))

    assert findings == (["end"] if mutation else [])


def test_late_markers_are_expected_even_after_a_short_lived_owner(small_environment: ChaosEnvironment, topic_name: str) -> None:
    source, destination = small_environment.source.proxy, small_environment.destination.proxy
    with copying(
        small_environment, topic_name, "tail-checks"
    ) as mutated:  # otherwise a check of the idle mirror finds late markers as well
        first = mutated.start_copier()
        mutated.write(10)
        mutated.hold_sent_requests(lambda: mutated.write_aborted(5))
        mutated.engine.copiers.kill(first)
        mutated.run_short_owner(2)
        source.cut()  # the third owner reads where the mirror ends, and has nothing to send yet
        mutated.start_copier()
        # a machine that stalls may cost it its lease of half a second; the next generation is fine, too
        mutated.until(lambda: any(seen.generation >= 3 and seen.unproven_end == 10 for seen in mutated.engine.reports()))

        destination.release()
        time.sleep(1.0)
        source.heal()
        mutated.until(mutated.caught_up)
        time.sleep(1.0)  # for markers that should not be appended: it checks the end before its first marker
        findings = mutated.end_findings(mutated.end(small_environment.source))

    assert findings == []
