"""On small clusters: the judge detects each missing safeguard of the engine, and a storm reports unexpected failures.

With all safeguards, the judge finds nothing. Each test is the smallest sequence of events that needs the safeguard: requests of
a copy worker are held in the network until another owner has taken over. Two copies run at the same time, with and without the
safeguard.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from chaos import judge
from chaos.environment import TOPICS, ChaosEnvironment, Side
from chaos.judge import Finding
from chaos.loops import LoopEngine
from chaos.reading import Ends, read_topic
from chaos.storm import Storm
from chaos.watch import EndSampler
from chaos.writers import PlainWriter, open_transaction
from linkengine.domain.plans import CopyTuning, PartitionProgress

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TIMEOUT_S = 180.0
LEASE_MS = 500
RECORD_BYTES = 1_000  # many times the size of a metadata request
QUIET_S = 2.0  # time in which a copy worker on a busy machine sends what it has read
COPY_S = 300.0
STORM_S = 5.0
SHORT_S = 1.2  # shorter than the wait before the first marker after a dead owner
CRASH = Finding(kind="crash", detail="worker.log: KeyError: 3")
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

    def write_aborted(self, count: int = 5) -> None:
        with self.open_transaction(count):
            pass

    def open_transaction(self, count: int) -> AbstractContextManager[None]:
        """Write records to the source that are aborted when the block ends."""
        return open_transaction(self.environment.source.cluster.client(), self.topic, records=count)

    def end(self, side: Side) -> int:
        return int(self.until(self._ends[side].all)[self.topic, 0])

    def caught_up(self) -> bool:
        return self.end(self.environment.destination) >= self.end(self.environment.source)

    def settle(self) -> None:
        """Wait until the worker has copied everything and has every acknowledgement."""
        self.until(self.caught_up)
        self.wait_for_report(lambda seen, end: seen.mirror_end == end)

    def wait_for_report(self, condition: Callable[[PartitionProgress, int], bool]) -> None:
        """Wait until a report of the worker meets the condition; its second argument is the source's end."""
        end = self.end(self.environment.source)
        self.until(lambda: any(condition(seen, end) for seen in self.engine.reports()))

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


@contextmanager
def copying_both(environment: ChaosEnvironment, topic: str, mutation: str) -> Iterator[tuple[MutatedRun, MutatedRun]]:
    """Yield a run with all safeguards, and a run without the safeguard."""
    with (
        copying(environment, f"{topic}-whole", "") as whole,
        copying(environment, f"{topic}-mutated", mutation) as mutated,
    ):
        yield whole, mutated


def hold_sent_requests(runs: Sequence[MutatedRun], send: Callable[[MutatedRun], None], *, least: int = 1) -> None:
    """Hold the present connections, and wait until each copy worker has sent at least ``least`` bytes over them.

    Waits first until the workers have every acknowledgement: nothing follows a first append whose response is held.
    """
    for run in runs:
        run.settle()
    proxy, held, deadline = runs[0].environment.destination.proxy, 0, time.monotonic() + TIMEOUT_S
    proxy.hold()
    for run in runs:
        send(run)
    for run in runs:
        run.wait_for_report(lambda seen, end: (seen.source_end or 0) >= end)
    while proxy.held_bytes > held or held < least * len(runs):  # metadata requests, too; what was to be sent follows
        assert time.monotonic() < deadline, f"only {held} bytes were sent"
        held = MutatedRun.until(lambda: proxy.held_bytes)
        time.sleep(QUIET_S)


def test_without_sequences_a_late_batch_is_appended_twice(small_environment: ChaosEnvironment, topic_name: str) -> None:
    with copying_both(small_environment, topic_name, "sequences") as runs:
        _, mutated = runs
        first = [run.start_copier() for run in runs]
        for run in runs:
            run.write(10)
        hold_sent_requests(runs, lambda run: run.write(10), least=10 * RECORD_BYTES)
        for run, pid in zip(runs, first, strict=True):
            run.engine.copiers.kill(pid)
            run.start_copier()
        for run in runs:
            run.until(run.caught_up)

        small_environment.destination.proxy.release()
        mutated.until(lambda: mutated.end(small_environment.destination) >= 30)
        time.sleep(1.0)  # held requests are in flight again; a refused request leaves no trace to wait for
        findings = [run.findings() for run in runs]

    assert findings == [[], ["extra"] * 10]


def test_without_a_check_of_offsets_records_move_behind_a_foreign_write(
    small_environment: ChaosEnvironment, topic_name: str
) -> None:
    with copying_both(small_environment, topic_name, "offsets") as runs:
        whole, mutated = runs
        for run in runs:
            run.start_copier()
            run.write(10)
        for run in runs:
            run.until(run.caught_up)
            run.write(1, side=small_environment.destination)  # as the administrator, whom no ACL denies
            run.write(5)
        keys = [run.engine.assignments[run.topic][0].key for run in runs]
        mutated.until(lambda: mutated.end(small_environment.destination) >= 16)
        whole.until(lambda: whole.engine.phases()[keys[0]] == "FOREIGN_WRITE")
        for run in runs:
            run.write(5)
        mutated.until(lambda: mutated.end(small_environment.destination) >= 21)
        time.sleep(1.0)  # for a copy worker that should have stopped
        findings, phases = (
            [run.findings() for run in runs],
            [run.engine.phases()[key] for run, key in zip(runs, keys, strict=True)],
        )
        failures = [[str(failure) for failure in run.engine.failures()] for run in runs]

    # a broker accepts what is in flight before the foreign write can be detected; without mutation nothing is sent afterwards
    assert set(findings[0]) == {"changed", "missing"}
    assert findings[0].count("missing") >= 4
    assert findings[1] == ["changed"] * 10 + ["extra"]
    assert phases == ["FOREIGN_WRITE", "COPYING"]
    assert [len(found) for found in failures] == [1, 0]  # without foreign writes, a FAILED mirror would be a finding
    assert "FOREIGN_WRITE" in failures[0][0]


def test_the_watch_finds_a_mirror_beyond_what_is_committed(small_environment: ChaosEnvironment, topic_name: str) -> None:
    with copying_both(small_environment, topic_name, "commits") as runs:
        whole, mutated = watches = [EndSampler(small_environment, {run.topic: 1}) for run in runs]
        for run in runs:
            run.start_copier()
            run.write(10)
        for run in runs:
            run.until(run.caught_up)
        with runs[0].open_transaction(5), runs[1].open_transaction(5):
            for watch in watches:
                watch.start()
            MutatedRun.until(lambda: mutated.findings)
            MutatedRun.until(lambda: whole.samples > 5)
            for watch in watches:
                watch.stop()

    assert not any(watch.error for watch in watches)
    assert whole.findings == []
    assert {(found.kind, found.offset) for found in mutated.findings} == {("ahead", 15)}


def test_without_a_fence_a_late_batch_is_appended_to_a_stopped_mirror(
    small_environment: ChaosEnvironment, topic_name: str
) -> None:
    with copying_both(small_environment, topic_name, "fence") as runs:
        _, mutated = runs
        first = [run.start_copier() for run in runs]
        for run in runs:
            run.write(10)
        hold_sent_requests(runs, lambda run: run.write(10), least=10 * RECORD_BYTES)
        for run, pid in zip(runs, first, strict=True):
            run.engine.copiers.kill(pid)
            run.engine.fail_over(run.topic)

        small_environment.destination.proxy.release()
        mutated.until(lambda: mutated.end(small_environment.destination) >= 20)
        time.sleep(1.0)
        findings = [run.findings(ends=run.engine.stopped(run.topic)) for run in runs]

    assert findings == [[], ["extra"] * 10]


def test_without_raised_epochs_late_markers_shift_the_records_behind_them(
    small_environment: ChaosEnvironment, topic_name: str
) -> None:
    with copying_both(small_environment, topic_name, "epochs") as runs:
        _, mutated = runs
        first = [run.start_copier() for run in runs]
        for run in runs:
            run.write(10)
        hold_sent_requests(runs, MutatedRun.write_aborted)
        for run, pid in zip(runs, first, strict=True):
            run.engine.copiers.kill(pid)
            run.start_copier()
        for run in runs:
            run.until(run.caught_up)

        small_environment.destination.proxy.release()
        mutated.until(lambda: mutated.end_findings(mutated.end(small_environment.source)))
        time.sleep(1.0)
        findings = [run.end_findings(run.end(small_environment.source)) for run in runs]

    assert findings == [[], ["end"]]


def test_late_markers_are_expected_even_after_a_short_lived_owner(small_environment: ChaosEnvironment, topic_name: str) -> None:
    source, destination = small_environment.source.proxy, small_environment.destination.proxy
    with copying(
        small_environment, topic_name, "tail-checks"
    ) as mutated:  # otherwise a check of the idle mirror finds late markers as well
        first = mutated.start_copier()
        mutated.write(10)
        hold_sent_requests([mutated], MutatedRun.write_aborted)
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


# --- a storm -------------------------------------------------------------------------------------------------------------


class Unsettled(LoopEngine):
    """Copies as usual, and reports that it has not caught up."""

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        super().settle(topics, timeout_s=timeout_s)
        raise TimeoutError("The mirrors are not in sync.")

    def crashes(self) -> Iterator[Finding]:
        yield CRASH


class MortalWriter(PlainWriter):
    """Fails with a bug in its third round."""

    def round(self, producer: Producer) -> None:
        super().round(producer)
        if next(self._numbers) > 30:
            raise KeyError(3)


def test_an_unsettled_storm_is_judged_and_a_failed_writer_is_reported(
    small_environment: ChaosEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.storm.PlainWriter", MortalWriter)
    with Unsettled(small_environment, TOPICS) as engine:
        verdict = Storm(small_environment, engine, seed=1, spare={}).run((), seconds=STORM_S)

    kinds = [finding.kind for finding in verdict.findings]
    assert kinds.count("writer") == 1
    assert kinds.count("unsettled") == 1
    findings = [str(finding) for finding in verdict.findings]
    assert set(kinds) == {"writer", "unsettled", "end", "crash"}, findings  # "end": mirrors were not promoted
    assert all(verdict.judged[topic] for topic in TOPICS)
    assert verdict.status() == 1
    assert "KeyError: 3" in next(str(finding) for finding in verdict.findings if finding.kind == "writer")
