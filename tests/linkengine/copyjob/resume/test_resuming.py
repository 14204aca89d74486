"""A resume continues whatever happens to the connection to the former leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Event

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.destination import side as side_module
from linkengine.copyjob.destination.side import DestinationSide
from linkengine.copyjob.event_loop import Poller
from linkengine.copyjob.values import LogEnd, LogEndQuery, Stage
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.producers import ProducerState
from linkengine.domain.workers import Grant
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.copying import wait_for
from tests.linkengine.copyjob.partitions import partition

TAIL = LogEnd(
    leader=Leader(broker=2, epoch=5),
    topic_id=bytes(range(16)),
    start=0,
    end=7,
    producer=ProducerState(epoch=3, last_sequence=6, coordinator_epoch=8),
    producer_id=1 << 62,
)
GONE = LinkEngineError(ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, "Connection refused.")


def test_lost_connection_to_the_former_leader_does_not_end_a_resume_at_the_new_one(
    services: Services, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, resumed = Event(), list[tuple[Stage, int | None]]()

    def read_slowly(_cluster: object, queries: Sequence[LogEndQuery], **_: object) -> dict[str, LogEnd]:
        assert released.wait(10)
        return {query.assignment.key: TAIL for query in queries}

    def refuse(_: object, error: LinkEngineError) -> None:
        raise error

    monkeypatch.setattr(side_module, "read_log_ends", read_slowly)
    side = DestinationSide(
        services, address_from_properties({"bootstrap.servers": "127.0.0.1:1"}),
        may_write=lambda _: True, announce_markers=lambda _: None, advanced=lambda _: None, failed=refuse, fenced=refuse,
        resumed=lambda mirror: resumed.append((mirror.stage, mirror.position)), read_starts=lambda _: {},
    )  # fmt: skip
    mirror = partition()
    mirror.start_hold(Grant(key=mirror.key, generation=9, clean=True, valid_until=1_000.0))
    side.resume(mirror)
    side.pump(services.clock.monotonic())  # starts to read the log end at the new leader

    side._broker_lost([mirror], GONE)
    released.set()

    def is_resumed() -> bool:
        poller.wait(0.02)
        return bool(resumed)

    wait_for(is_resumed)

    assert resumed == [(Stage.COPYING, 7)]
    side.close()


@pytest.mark.parametrize(("before", "waits"), [(bytes(16), False), (bytes([7] * 16), True)], ids=["got an id", "another id"])
def test_mirror_topic_that_gets_an_id_is_the_same_topic(services: Services, before: bytes, *, waits: bool) -> None:
    """The cluster was upgraded. A topic that had another id before was recreated, if later observations confirm it."""
    failed, resumed = list[ErrorCode](), list[int | None]()
    side = DestinationSide(
        services, address_from_properties({"bootstrap.servers": "127.0.0.1:1"}),
        may_write=lambda _: True, announce_markers=lambda _: None, advanced=lambda _: None,
        failed=lambda _, error: failed.append(error.code), fenced=lambda _, error: failed.append(error.code),
        resumed=lambda mirror: resumed.append(mirror.position), read_starts=lambda _: {},
    )  # fmt: skip
    mirror = partition()
    mirror.start_hold(Grant(key=mirror.key, generation=9, clean=True, valid_until=1_000.0))
    mirror.log_end = replace(TAIL, topic_id=before)

    side._log_ends_read([(mirror, mirror.attempt)], {mirror.key: TAIL})

    assert (failed, resumed) == ([], [] if waits else [7])
    side.close()
