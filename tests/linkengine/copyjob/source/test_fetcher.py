"""A source broker played by the test: a lost connection is noticed while no buffer is free, and a stale probe is dropped."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.event_loop import Poller
from linkengine.copyjob.source.fetch_planner import FetchEvents
from linkengine.copyjob.source.fetch_session import FetchInFlight
from linkengine.copyjob.source.fetcher import BrokerFetcher
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.connection import Connection
from linkengine.kafka.requests import FETCH_API_KEY, FETCH_BY_ID, FetchedPartition, FetchResponse
from linkengine.kafka.topicviews import Leader
from tests.linkengine.batches.batchlog import Rec, dense
from tests.linkengine.copyjob.copying import wait_for
from tests.linkengine.copyjob.partitions import NOWHERE, partition, unexpected

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, whatever is unsent


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_lost_connection_is_noticed_while_its_response_waits_for_a_buffer(
    server: socket.socket, services: Services, poller: Poller
) -> None:
    def connected(_: int) -> Connection:
        connection = Connection(socket.create_connection(server.getsockname()), host="broker", port=9092)
        connection.versions[FETCH_API_KEY] = (0, FETCH_BY_ID)
        return connection

    lost: list[LinkEngineError] = []
    refused: list[int] = []
    pool: Any = SimpleNamespace(take=refused.append, expect_none=lambda: None)  # records requests, and has no buffer
    cluster: Any = SimpleNamespace(open=connected)
    events = FetchEvents(planned=unexpected, refused=unexpected, emptied=unexpected, lost=lambda _, error: lost.append(error))
    source, mirror_partition = BrokerFetcher(replace(services, pool=pool), cluster, 0, events=events), partition()
    mirror_partition.stage, mirror_partition.position, mirror_partition.origin = (
        Stage.COPYING,
        0,
        SourceOrigin(Leader(broker=0, epoch=1), bytes(range(16))),
    )
    source.adopt(mirror_partition)

    def iterate() -> bool:
        poller.wait(0.02)
        source.pump(services.clock.monotonic())
        source.check(services.clock.monotonic())
        return True

    wait_for(lambda: iterate() and source._in_flight)
    accepted = server.accept()[0]
    assert accepted.recv(1_000)
    accepted.sendall(struct.pack(">ii", 10_000, 1) + bytes(100))
    wait_for(lambda: iterate() and refused)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    accepted.close()

    wait_for(lambda: iterate() and lost, deadline_s=5)

    assert "reset" in lost[0].message
    source.close()


@pytest.mark.parametrize("moved", [True, False])
def test_response_to_a_probe_is_dropped_if_the_partition_has_another_leader(services: Services, moved: bool) -> None:
    planned: list[object] = []
    events = FetchEvents(planned=planned.append, refused=unexpected, emptied=unexpected, lost=unexpected)
    source, mirror_partition, topic = BrokerFetcher(services, NOWHERE, 0, events=events), partition(), bytes(range(16))
    mirror_partition.stage, mirror_partition.position, mirror_partition.origin = (
        Stage.COPYING,
        10,
        SourceOrigin(Leader(broker=0, epoch=5), topic),
    )
    source.adopt(mirror_partition)
    source._update_session(services.clock.monotonic())
    requested = FetchInFlight(1, FETCH_BY_ID, 0.0, 0.0, 1 << 20, ((topic, 0), source._session.entries[topic, 0]))
    if moved:
        source.forget(mirror_partition)
        mirror_partition.leave_origin()
        mirror_partition.origin = SourceOrigin(Leader(broker=1, epoch=6), topic)

    records = memoryview(bytearray(dense(10, [Rec(value=b"x" * 70_000)]).encode()))
    response = FetchResponse(0, 0, 0, [FetchedPartition(topic, 0, 0, 20, 20, 0, (), records)])
    source._take_partitions(requested, response, Buffer(), responded_ms=1)

    assert (planned, mirror_partition.position, list(source._changed)) == (
        ([], 10, []) if moved else ([mirror_partition], 11, [mirror_partition])
    )


def test_partition_that_a_full_response_does_not_name_was_unchanged(services: Services) -> None:
    """A broker names each partition whose high watermark has moved (``test_fetch_session_left_out``)."""
    planned: list[object] = []
    events = FetchEvents(planned=planned.append, refused=unexpected, emptied=unexpected, lost=unexpected)
    source, topic, (busy, idle) = (
        BrokerFetcher(services, NOWHERE, 0, events=events),
        bytes(range(16)),
        (partition(), partition(1)),
    )
    for number in (busy, idle):
        number.stage, number.position, number.origin = Stage.COPYING, 10, SourceOrigin(Leader(broker=0, epoch=5), topic)
        number.counters.observed_mirror(start=0, end=10)
        number.counters.observed_source(start=0, end=10, high_watermark=10, now_ms=1_000)
        source.adopt(number)
    source._update_session(services.clock.monotonic())
    source._session.request()
    records = memoryview(bytearray(dense(10, [Rec(value=b"x" * 70_000)]).encode()))
    full = FetchResponse(0, 0, 7, [FetchedPartition(topic, 0, 0, 20, 20, 0, (), records)])

    source._take_partitions(FetchInFlight(1, FETCH_BY_ID, 0.0, 0.0, 1, None), full, Buffer(), responded_ms=9_000)
    source.note_unchanged(idle)
    source.note_unchanged(busy)

    assert planned == [busy]
    assert (idle.counters.source_seen_ms, idle.counters.caught_up_at_ms) == (9_000, 9_000)
    assert busy.counters.caught_up_at_ms == 1_000
