"""The judge catches a copier without one of its safeguards, and has nothing to say about the whole one.

Each schedule is the smallest that needs the safeguard: what a copier sent is held in the network until after somebody else has
taken over.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from chaos import judge
from chaos.ground import Ground, Side
from chaos.loops import LoopEngine
from chaos.reading import Ends, read_topic
from chaos.watch import Watch
from linkengine.domain.plans import CopyTuning

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TIMEOUT_S = 180.0
LEASE_MS = 500
RECORD_BYTES = 1_000  # many times what a look-up takes
QUIET_S = 2.0  # in which a copier on a busy machine comes to sending what it has read
COPY_S = 300.0
SHORT_S = 1.2  # the wait before the first marker after a dead owner is longer
TUNING = CopyTuning(lease_ttl_ms=LEASE_MS, request_timeout_ms=120_000, progress_ms=100)  # nobody gives up what is held


class Scene:
    """One topic of one partition between two small clusters, and copiers that are started by hand."""

    def __init__(self, ground: Ground, topic: str, mutation: str) -> None:
        self.ground, self.topic = ground, topic
        self.engine = LoopEngine(ground, {topic: 1}, mutation=mutation, tuning=TUNING)
        self._ends = {side: Ends(side.cluster.client(), {topic: 1}) for side in (ground.source, ground.destination)}

    def start_copier(self) -> int:
        return self.engine.start_copier(seconds=COPY_S)

    def let_a_short_owner_come(self, generation: int) -> None:
        """Let one more owner have the lease and give it back before it may send a marker."""
        name = f"generation:{{{self.engine.assignments[self.topic][0].key}}}"
        with self.ground.client() as client:
            while int(str(client.hget(name, "generation"))) < generation:  # on a slow machine its slice may be over first
                pid = self.engine.start_copier(seconds=SHORT_S)
                self.until(lambda pid=pid: not psutil.pid_exists(pid))

    def write(self, count: int, *, side: Side | None = None) -> None:
        """Write records of 1 KB, one batch each call."""
        producer = Producer({**(side or self.ground.source).cluster.client(), "linger.ms": 50})
        for number in range(count):
            producer.produce(self.topic, value=f"{time.monotonic_ns()}-{number}".ljust(RECORD_BYTES, "."))
        assert producer.flush(TIMEOUT_S) == 0

    def write_aborted(self, count: int) -> None:
        with self.open_transaction(count):
            pass

    @contextmanager
    def open_transaction(self, count: int) -> Iterator[None]:
        """Write records to the source's log that are aborted in the end."""
        producer = Producer({**self.ground.source.cluster.client(), "transactional.id": self.topic})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(self.topic, value=f"aborted {number}")
        producer.flush(TIMEOUT_S)
        yield
        producer.abort_transaction(TIMEOUT_S)

    def end(self, side: Side) -> int:
        return int(self.until(self._ends[side].all)[self.topic, 0])

    def caught_up(self) -> bool:
        return self.end(self.ground.destination) >= self.end(self.ground.source)

    def hold_what_is_sent(self, send: Callable[[], None], *, least: int = 1) -> None:
        """Hold the connections of this moment, and wait until the copier has sent so many bytes over them.

        Not before it has heard that all is written: nothing follows a first append whose answer is held.
        """
        self.until(self.caught_up)
        end = self.end(self.ground.source)
        self.until(lambda: any(seen.mirror_end == end for seen in self.engine.reports()))
        self.ground.destination.proxy.hold()
        send()
        proxy, held, deadline = self.ground.destination.proxy, 0, time.monotonic() + TIMEOUT_S
        while proxy.held_bytes > held or held < least:  # its own look-ups are held as well: what was to be sent follows at once
            assert time.monotonic() < deadline, f"only {held} bytes were sent"
            held = self.until(lambda: proxy.held_bytes)
            time.sleep(QUIET_S)

    def findings(self, *, ends: dict[int, int] | None = None) -> list[str]:
        source, mirror = (
            read_topic(side.cluster.client(), self.topic, partitions=1, committed=True)
            for side in (self.ground.source, self.ground.destination)
        )
        return [one.kind for one in judge.compare(self.topic, source, mirror, ends=ends)]

    def end_findings(self, expected: int) -> list[str]:
        place = (self.topic, 0)
        return [one.kind for one in judge.check_ends({place: expected}, {place: self.end(self.ground.destination)})]

    @staticmethod
    def until(look: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := look()):
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.05)
        return found


@contextmanager
def scene(ground: Ground, topic: str, mutation: str) -> Iterator[Scene]:
    one = Scene(ground, topic, mutation)
    try:
        yield one
    finally:
        ground.heal()
        one.engine.copiers.close()


@pytest.mark.parametrize("mutation", ["", "sequences"])
def test_without_sequences_a_late_batch_is_appended_twice(small_ground: Ground, topic_name: str, mutation: str) -> None:
    with scene(small_ground, topic_name, mutation) as one:
        first = one.start_copier()
        one.write(10)
        one.hold_what_is_sent(lambda: one.write(10), least=10 * RECORD_BYTES)
        one.engine.copiers.kill(first)
        one.start_copier()
        one.until(one.caught_up)

        small_ground.destination.proxy.release()
        if mutation:
            one.until(lambda: one.end(small_ground.destination) >= 30)
        time.sleep(1.0)  # what was held is on its way; nothing tells when it has come to nothing
        findings = one.findings()

    assert findings == (["extra"] * 10 if mutation else [])


@pytest.mark.parametrize("mutation", ["", "offsets"])
def test_without_a_look_at_offsets_records_move_behind_a_foreign_one(
    small_ground: Ground, topic_name: str, mutation: str
) -> None:
    with scene(small_ground, topic_name, mutation) as one:
        one.start_copier()
        one.write(10)
        one.until(one.caught_up)
        one.write(1, side=small_ground.destination)  # as the administrator: no rule keeps that one away
        one.write(5)
        key = one.engine.assignments[topic_name][0].key
        one.until(lambda: one.end(small_ground.destination) >= 16 if mutation else one.engine.phases()[key] == "FOREIGN_WRITE")
        one.write(5)
        if mutation:
            one.until(lambda: one.end(small_ground.destination) >= 21)
        time.sleep(1.0)  # for a copier that should have stopped
        findings, phase = one.findings(), one.engine.phases()[key]
        failures = [str(failure) for failure in one.engine.failures()]

    # a broker takes what is in flight before anybody can know; a whole copier says so and sends nothing after that
    if mutation:
        assert findings == ["changed"] * 10 + ["extra"]
    else:
        assert set(findings) == {"changed", "missing"}
        assert findings.count("missing") >= 4
    assert phase == ("COPYING" if mutation else "FOREIGN_WRITE")
    assert len(failures) == (0 if mutation else 1)  # where nobody wrote, a mirror that is given up is a finding
    assert all("FOREIGN_WRITE" in failure for failure in failures)


@pytest.mark.parametrize("mutation", ["", "commits"])
def test_the_watch_sees_a_mirror_that_goes_past_what_is_committed(small_ground: Ground, topic_name: str, mutation: str) -> None:
    with scene(small_ground, topic_name, mutation) as one:
        watch = Watch(small_ground, {topic_name: 1})
        one.start_copier()
        one.write(10)
        one.until(one.caught_up)
        with one.open_transaction(5):
            watch.start()
            if mutation:
                one.until(lambda: watch.findings)
            else:
                one.until(lambda: watch.samples > 5)
            watch.stop()

    assert not watch.error
    assert {(found.kind, found.offset) for found in watch.findings} == ({("ahead", 15)} if mutation else set())


@pytest.mark.parametrize("mutation", ["", "fence"])
def test_without_a_fence_a_late_batch_is_appended_to_a_stopped_mirror(
    small_ground: Ground, topic_name: str, mutation: str
) -> None:
    with scene(small_ground, topic_name, mutation) as one:
        first = one.start_copier()
        one.write(10)
        one.hold_what_is_sent(lambda: one.write(10), least=10 * RECORD_BYTES)
        one.engine.copiers.kill(first)
        one.engine.fail_over(topic_name)

        small_ground.destination.proxy.release()
        if mutation:
            one.until(lambda: one.end(small_ground.destination) >= 20)
        time.sleep(1.0)
        findings = one.findings(ends=one.engine.stopped(topic_name))

    assert findings == (["extra"] * 10 if mutation else [])


@pytest.mark.parametrize("mutation", ["", "epochs"])
def test_without_raised_epochs_late_markers_move_what_follows(small_ground: Ground, topic_name: str, mutation: str) -> None:
    with scene(small_ground, topic_name, mutation) as one:
        first = one.start_copier()
        one.write(10)
        one.hold_what_is_sent(lambda: one.write_aborted(5))
        one.engine.copiers.kill(first)
        one.start_copier()
        one.until(one.caught_up)

        small_ground.destination.proxy.release()
        if mutation:
            one.until(lambda: one.end_findings(one.end(small_ground.source)))
        time.sleep(1.0)
        findings = one.end_findings(one.end(small_ground.source))

    assert findings == (["end"] if mutation else [])


def test_a_short_owner_does_not_hide_that_late_markers_may_come(small_ground: Ground, topic_name: str) -> None:
    source, destination = small_ground.source.proxy, small_ground.destination.proxy
    with scene(small_ground, topic_name, "looks") as one:  # else a look at the idle mirror finds them as well
        first = one.start_copier()
        one.write(10)
        one.hold_what_is_sent(lambda: one.write_aborted(5))
        one.engine.copiers.kill(first)
        one.let_a_short_owner_come(2)
        source.cut()  # the third one reads where the mirror ends, and has nothing to send yet
        one.start_copier()
        # a machine that stands still may cost it its lease of half a second, and it has the next one
        one.until(lambda: any(seen.generation >= 3 and seen.unproven_end == 10 for seen in one.engine.reports()))

        destination.release()
        time.sleep(1.0)
        source.heal()
        one.until(one.caught_up)
        time.sleep(1.0)  # for markers that should not come: it looks again before its first one
        findings = one.end_findings(one.end(small_ground.source))

    assert findings == []
