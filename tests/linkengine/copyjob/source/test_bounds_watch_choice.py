"""Which sources are observed: those that are not fetched, but not those whose next Fetch shows whether they can be read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source.data_loss import EVERY_S, SourceWatch, WatchEvents
from linkengine.copyjob.values import SourceOrigin, Stage, Trouble
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import partition

DENIED = Trouble(PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.AUTHORIZATION_ERROR, "READ is denied.")


def requested_partitions(services: Services, mirror: PartitionState, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    events = WatchEvents(seen=lambda *_: None, refused=lambda *_: None)
    watch, requested = SourceWatch(services, cast(Cluster, None), events), list[Any]()
    monkeypatch.setattr(watch, "_request", lambda _broker, held_up: requested.extend(held_up))
    now = services.clock.monotonic()
    watch.tick(now, {(0, 0): [mirror]})
    watch.tick(now + EVERY_S, {(0, 0): [mirror]})
    return requested


def test_observed_end_does_not_clear_a_denied_fetch(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = partition()
    mirror.stage, mirror.origin = Stage.COPYING, SourceOrigin(leader=Leader(broker=0, epoch=1), topic=bytes(16))
    assert requested_partitions(services, mirror, monkeypatch) == [("t", 0)]  # its last observation is too old

    mirror.source_trouble = DENIED
    assert requested_partitions(services, mirror, monkeypatch) == []

    mirror.stage = Stage.RESUMING  # it is not fetched, so only the observation shows its end
    assert requested_partitions(services, mirror, monkeypatch) == [("t", 0)]
