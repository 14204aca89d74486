"""A source broker played by the test, at the other end of a socket: what is noticed while no buffer is free."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.intake import SourceBroker
from linkengine.copyjob.pieces import Origin, Stage
from linkengine.copyjob.session import Asked
from linkengine.copyjob.stretches import IntakeEvents
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.connection import Connection
from linkengine.kafka.fetch import API_KEY, BY_ID, FetchAnswer, FetchedPartition
from linkengine.kafka.topicviews import Leader
from tests.linkengine.batches.batchlog import Rec, dense
from tests.linkengine.copyjob.copying import wait_for
from tests.linkengine.copyjob.partitions import partition

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, whatever is unsent


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def test_a_connection_that_is_lost_while_its_answer_waits_for_a_buffer_is_noticed(
    server: socket.socket, services: Services
) -> None:
    def connected(_: int) -> Connection:
        connection = Connection(socket.create_connection(server.getsockname()), host="broker", port=9092)
        connection.versions[API_KEY] = (0, BY_ID)
        return connection

    lost: list[LinkEngineError] = []
    refused: list[int] = []
    pool: Any = SimpleNamespace(take=refused.append, expect_none=lambda: None)  # takes note, and has none
    events: Any = dict.fromkeys(("planned", "refused", "emptied"), pytest.fail)
    cluster: Any = SimpleNamespace(open=connected)
    heard = IntakeEvents(**events, lost=lambda _, error: lost.append(error))
    source, one = SourceBroker(replace(services, pool=pool), cluster, 0, events=heard), partition()
    one.stage, one.position, one.origin = Stage.COPYING, 0, Origin(Leader(broker=0, epoch=1), bytes(range(16)))
    source.adopt(one)

    def turn() -> None:
        services.poller.wait(0.02)
        source.pump(services.clock.monotonic())
        source.check(services.clock.monotonic())

    wait_for(lambda: turn() or source._asked)  # type: ignore[func-returns-value]
    theirs = server.accept()[0]
    assert theirs.recv(1_000)
    theirs.sendall(struct.pack(">ii", 10_000, 1) + bytes(100))
    wait_for(lambda: turn() or refused)  # type: ignore[func-returns-value]
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    theirs.close()

    wait_for(lambda: turn() or lost, deadline_s=5)  # type: ignore[func-returns-value]

    assert "reset" in lost[0].message
    source.close()


@pytest.mark.parametrize("moved", [True, False])
def test_what_was_asked_for_alone_is_not_taken_from_a_leader_that_is_read_no_more(services: Services, moved: bool) -> None:
    planned: list[object] = []
    events = IntakeEvents(planned=planned.append, refused=pytest.fail, emptied=pytest.fail, lost=pytest.fail)
    cluster: Any = None
    source, one, topic = SourceBroker(services, cluster, 0, events=events), partition(), bytes(range(16))
    one.stage, one.position, one.origin = Stage.COPYING, 10, Origin(Leader(broker=0, epoch=5), topic)
    source.adopt(one)
    source._update_session(services.clock.monotonic())
    asked = Asked(1, BY_ID, 0.0, 0.0, 1 << 20, ((topic, 0), source._session.entries[topic, 0]))
    if moved:
        source.forget(one)
        one.leave_origin()
        one.origin = Origin(Leader(broker=1, epoch=6), topic)

    records = memoryview(bytearray(dense(10, [Rec(value=b"x" * 70_000)]).encode()))
    answer = FetchAnswer(0, 0, 0, [FetchedPartition(topic, 0, 0, 20, 20, 0, (), records)])
    source._take_partitions(asked, answer, Buffer(), heard_ms=1, roomy=True)

    assert (planned, one.position, list(source._stirred)) == (([], 10, []) if moved else ([one], 11, [one]))
