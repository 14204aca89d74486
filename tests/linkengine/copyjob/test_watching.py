"""Whose source's end is looked at: of those that are not read, and not of those whose reading is about to tell."""

from __future__ import annotations

from typing import Any, cast

import pytest

from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Origin, Stage, Trouble
from linkengine.copyjob.sourcewatch import EVERY_S, SourceWatch, WatchEvents
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import partition

DENIED = Trouble(PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.AUTHORIZATION_ERROR, "READ is denied.")


def asked_for(services: Services, mirror: MirrorPartition, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    events = WatchEvents(seen=lambda *_: None, refused=lambda *_: None)
    watch, asked = SourceWatch(services, cast(Cluster, None), events), list[Any]()
    monkeypatch.setattr(watch, "_ask", lambda _broker, held_up: asked.extend(held_up))
    now = services.clock.monotonic()
    watch.tick(now, {(0, 0): [mirror]})
    watch.tick(now + EVERY_S, {(0, 0): [mirror]})
    return asked


def test_observed_end_does_not_clear_a_denied_fetch(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = partition()
    mirror.stage, mirror.origin = Stage.COPYING, Origin(leader=Leader(broker=0, epoch=1), topic=bytes(16))
    assert asked_for(services, mirror, monkeypatch) == [("t", 0)]  # nothing was heard of it for long

    mirror.source_trouble = DENIED
    assert asked_for(services, mirror, monkeypatch) == []

    mirror.stage = Stage.RESUMING  # nobody reads it, so the look is all there is
    assert asked_for(services, mirror, monkeypatch) == [("t", 0)]
