"""BrokerProducer against a scripted destination broker on a socket: pipelining, wake-ups, buffers, timeouts."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import pytest

from linkengine.batches.records import Record, encode_records
from linkengine.batches.steps import Append
from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.destination.head_seed import dense_filler
from linkengine.copyjob.destination.producer import BrokerProducer, ProducerEvents
from linkengine.copyjob.event_loop import Poller
from linkengine.copyjob.partition_state import REMEMBERED_MS, PartitionState, log_end_query
from linkengine.copyjob.producer_state import Unacknowledged
from linkengine.copyjob.values import LogEnd
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.producers import ProducerState
from linkengine.domain.workers import Grant
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.copying import wait_for
from tests.linkengine.copyjob.partitions import partition

TOPIC_ID = bytes(range(16))
EACH = 2  # records of a batch


class Broker:
    """A scripted broker: reads requests, and responds when the test says so."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # else the kernel may buffer a whole request
        self._connections: list[socket.socket] = []
        self._produce: socket.socket | None = None

    def open(self, _: int) -> Connection:
        """Connect as ``Cluster.open`` does; there is a connection for Produce and another for gap fills."""
        connection = Connection(socket.create_connection(self._server.getsockname()), host="broker", port=9092)
        connection.versions[0] = (0, 13)
        self._connections.append(self._server.accept()[0])
        return connection

    def take_requests(self, count: int, *, piece_s: float = 0.0) -> None:
        """Read requests, taking ``piece_s`` for each piece of 64 KB; their correlation ids are 1, 2, 3 and so on."""
        [self._produce], _, _ = select.select(self._connections, [], [], 60)
        stream = self._produce.makefile("rb", buffering=0)
        for _ in range(count):
            (size,) = struct.unpack(">i", stream.read(4))
            while size:
                piece = stream.read(size)
                assert piece, "the connection was lost"
                size -= len(piece)
                time.sleep(piece_s)

    def response(self, *requests: int, moved: int = 0) -> None:
        """Respond to these requests with the expected base offset, or with an offset that is ``moved`` from it."""
        assert self._produce is not None
        for number in requests:
            entry = struct.pack(">ihqqq", 0, 0, (number - 1) * EACH + moved, -1, 0) + b"\x01\x00\x00"
            body = b"\x00\x02" + TOPIC_ID + b"\x02" + entry + b"\x00" + bytes(4) + b"\x00"
            self._produce.sendall(struct.pack(">ii", len(body) + 4, number) + body)

    def close(self) -> None:
        """Close all sockets."""
        for each in (self._server, *self._connections):
            each.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    scripted = Broker()
    yield scripted
    scripted.close()


def writable(*, batches: int) -> PartitionState:
    """Return a partition of an empty mirror with so many batches to write."""
    mirror = partition()
    mirror.start_hold(Grant(key=mirror.key, generation=9, clean=True, valid_until=1_000.0))
    seen = ProducerState(epoch=3, last_sequence=-1, coordinator_epoch=8)
    leader = Leader(broker=0, epoch=1)
    log_end = LogEnd(leader=leader, topic_id=TOPIC_ID, start=0, end=0, producer=seen, producer_id=1 << 62)
    mirror.resumed(log_end, now_ms=0)
    batch = dense_filler(EACH, 0)
    starts = range(0, batches * EACH, EACH)
    mirror.planned([Append(at, EACH, memoryview(bytearray(batch)), records=EACH, max_timestamp=0) for at in starts], Buffer())
    return mirror


def test_full_pipeline_wakes_on_a_burst_of_responses_and_reads_fewer_at_the_next_tick(
    broker: Broker, services: Services, poller: Poller
) -> None:
    def ignore(_: object) -> None: ...

    def refuse(_: object, error: LinkEngineError) -> None:
        raise error

    events = ProducerEvents(
        may_write=bool, announce_markers=ignore, advanced=ignore, interrupted=refuse, failed=refuse, lost=refuse
    )
    outlet = BrokerProducer(services, cast(Cluster, broker), 0, events=events)
    mirror = writable(batches=20)
    outlet.adopt(mirror)
    outlet.wake(mirror)

    def turn() -> bool:
        poller.wait(0.02)
        outlet.pump(services.clock.monotonic())
        return True

    def turned_until(look: Callable[[], bool]) -> None:
        wait_for(lambda: turn() and look())

    turned_until(lambda: len(mirror.in_flight) == 1)  # the first append is sent alone
    broker.take_requests(1)
    broker.response(1)
    turned_until(lambda: len(mirror.in_flight) == 5)
    broker.take_requests(5)

    broker.response(2, 3)
    assert all(turn() and mirror.counters.mirror_end == EACH for _ in range(10))  # the loop is not woken

    def is_checked() -> bool:
        outlet.check(services.clock.monotonic())
        return mirror.counters.mirror_end == 3 * EACH

    wait_for(is_checked)

    broker.response(4)
    turned_until(lambda: len(mirror.in_flight) == 5)
    assert mirror.counters.mirror_end == 4 * EACH
    outlet.close()


class BrokerLoop:
    """A BrokerProducer and the loop around it, which the test runs turn by turn."""

    def __init__(self, broker: Broker, services: Services, poller: Poller, **callbacks: Any) -> None:
        self.allowed, self.services, self.poller = True, services, poller
        defaults = {name: lambda *_: None for name in ("announce_markers", "advanced")} | dict.fromkeys(
            ("interrupted", "failed", "lost"), _raise
        )
        events = ProducerEvents(may_write=lambda _: self.allowed, **(defaults | callbacks))
        self.outlet = BrokerProducer(services, cast(Cluster, broker), 0, events=events)

    def write(self, mirror: PartitionState) -> None:
        self.outlet.adopt(mirror)
        self.outlet.wake(mirror)

    def turn(self) -> bool:
        self.poller.wait(0.02)
        self.outlet.pump(self.services.clock.monotonic())
        self.outlet.check(self.services.clock.monotonic())
        return True

    def until(self, look: Callable[[], bool]) -> None:
        wait_for(lambda: self.turn() and look())


def _raise(_: object, error: LinkEngineError) -> None:
    raise error


def test_writing_continues_without_a_resume_when_the_lease_is_valid_again(
    broker: Broker, services: Services, poller: Poller
) -> None:
    """A lease that is renewed after its deadline was not lost, so the partition does not resume."""
    loop, mirror = BrokerLoop(broker, services, poller), writable(batches=20)
    loop.write(mirror)
    loop.until(lambda: len(mirror.in_flight) == 1)  # the first append is sent alone
    loop.allowed = False
    broker.take_requests(1)
    broker.response(1)
    loop.until(lambda: mirror.counters.mirror_end == EACH)
    assert all(loop.turn() and not mirror.in_flight for _ in range(5))

    loop.allowed = True

    loop.until(lambda: len(mirror.in_flight) == 5)
    loop.outlet.close()


def test_buffer_is_kept_while_the_socket_needs_it_although_its_partition_resumes(
    broker: Broker, services: Services, poller: Poller
) -> None:
    interruptions: list[LinkEngineError] = []

    def interrupted(interrupted_mirror: PartitionState, error: LinkEngineError) -> None:
        interruptions.append(error)
        loop.outlet.release_buffers(interrupted_mirror.interrupt(retry_at=0.0))

    loop, now_ms = BrokerLoop(broker, services, poller, interrupted=interrupted), services.clock.now_ms()
    mirror = partition()
    mirror.start_hold(Grant(key=mirror.key, generation=9, clean=False, valid_until=services.clock.monotonic() - 0.5))
    seen = ProducerState(epoch=3, last_sequence=-1, coordinator_epoch=8)
    log_end = LogEnd(leader=Leader(broker=0, epoch=1), topic_id=TOPIC_ID, start=0, end=0, producer=seen, producer_id=1 << 62)
    mirror.resumed(log_end, now_ms=0)
    times = [now_ms] * 4 + [now_ms - 2 * REMEMBERED_MS]  # the last has to wait for the previous owner, whose lease has expired
    batches = [bytes(encode_records([Record(at, ms, None, bytes(4_000_000), [])], codec=0)) for at, ms in enumerate(times)]
    buffer = services.pool.take(sum(map(len, batches)))
    assert buffer is not None
    view, starts = buffer.view(sum(map(len, batches))), accumulate(map(len, batches), initial=0)
    view[:] = b"".join(batches)
    places = zip(times, starts, batches, strict=False)
    steps = [Append(n, 1, view[at : at + len(batch)], 1, ms) for n, (ms, at, batch) in enumerate(places)]
    mirror.planned(steps, buffer)
    loop.write(mirror)
    loop.until(lambda: len(mirror.in_flight) == 1)  # the first append is sent alone
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(broker.take_requests, 1)
        loop.until(taken.done)
    loop.until(lambda: mirror.may_fill(services.clock.monotonic()))
    broker.response(1)

    loop.until(lambda: bool(interruptions))  # the broker reads nothing now, so the rest waits in the send queue

    assert buffer.users > 0
    assert services.pool.take(len(view)) is not buffer
    loop.outlet.close()


def test_large_request_on_a_slow_network_may_take_longer_than_the_request_timeout(
    broker: Broker, services: Services, poller: Poller
) -> None:
    """If it were given up it would be sent again from its first byte, and never arrive."""
    tuning = replace(services.tuning, request_timeout_ms=2_000)
    loop, mirror = BrokerLoop(broker, replace(services, tuning=tuning), poller), writable(batches=1)
    mirror.chunks.clear()
    batch = encode_records([Record(0, 0, None, bytes(20 << 20), [])], codec=0)
    mirror.planned([Append(0, 1, memoryview(batch), 1, 0)], Buffer())
    loop.write(mirror)
    loop.until(lambda: bool(mirror.in_flight))

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(broker.take_requests, 1, piece_s=0.02)
        loop.until(taken.done)
    broker.response(1)

    loop.until(lambda: mirror.counters.mirror_end == 1)
    assert mirror.mirror_trouble is None
    loop.outlet.close()


def test_connection_to_a_broker_that_accepts_nothing_is_closed(broker: Broker, services: Services, poller: Poller) -> None:
    lost: list[LinkEngineError] = []
    tuning = replace(services.tuning, request_timeout_ms=1_000)
    loop = BrokerLoop(broker, replace(services, tuning=tuning), poller, lost=lambda _, error: lost.append(error))
    mirror = writable(batches=1)
    loop.write(mirror)

    loop.until(lambda: bool(lost))

    assert "does not respond to a Produce" in lost[0].message
    loop.outlet.close()


def test_response_of_an_earlier_batch_leads_to_a_tail_check(broker: Broker, services: Services, poller: Poller) -> None:
    interruptions: list[LinkEngineError] = []
    loop = BrokerLoop(broker, services, poller, interrupted=lambda _, error: interruptions.append(error))
    mirror = writable(batches=2)
    loop.write(mirror)
    loop.until(lambda: len(mirror.in_flight) == 1)
    broker.take_requests(1)
    broker.response(1)
    loop.until(lambda: mirror.counters.mirror_end == EACH)
    loop.until(lambda: len(mirror.in_flight) == 1)
    broker.take_requests(1)

    broker.response(2, moved=-1)
    loop.until(lambda: bool(interruptions))

    mirror.interrupt(retry_at=0.0)
    assert log_end_query(mirror).unacknowledged == Unacknowledged(offset=EACH - 1, sequence=None, producer_id=1 << 62)
    loop.outlet.close()
