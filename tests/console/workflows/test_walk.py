"""A random walk over the operations of a bidirectional pair: never both sides writable, never an acknowledged record lost.

Users operate on either side in any order while an application keeps writing to both. A failover allows both sides to be
written to; from then on, records that either side acknowledged are on that side or in the export file of a restore. Once with
threads in place of workers, and once with real workers, any of which may be killed at any moment.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.actors import SYSTEM
from console.errors import ConsoleError
from console.mirrors import diverged_exports
from console.mirrors.operation_actions import operate, operate_many
from console.models import ClusterLink, MirrorTopic, RestoreRun
from console.redis import locks
from console.workflows import reverse_and_restore
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.kills import CrashingWorkers
from tests.console.workflows.reversal import Drive, Records, records, write_record
from tests.effort import tries

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
S, E = MirrorState, MirrorEvent
RESTING = {S.ACTIVE, S.PAUSED, S.STOPPED}
MOVES = (E.REVERSE_AND_START, E.REVERSE_AND_PAUSE, E.PAUSE, E.RESUME, E.FAILOVER, E.RESTORE, E.PROMOTE)
CLOSED = {S.ACTIVE, S.PAUSED, S.SOURCE_UNAVAILABLE, S.PENDING_SYNCHRONIZE}  # of a mirror: no application writes to it
TRIED = 6  # operations per step
SEED = os.environ.get("WALK_SEED", "1")  # each seed is another walk
Pair = tuple[ClusterLink, ClusterLink]


class Walk:
    """The pair, what was written to it, and what users have allowed. Each walk continues where the last ended."""

    def __init__(self, topic: str, sides: tuple[ClusterLink, ClusterLink], clusters: Any, drive: Drive) -> None:
        self.topic, self.sides, self.clusters, self.drive = topic, sides, clusters, drive
        self.acknowledged: dict[bytes, int] = {}  # value -> offset
        self.forked = False  # after a failover both sides may be writable until either is restored
        self._number = 0

    def operate(self, move: MirrorEvent, side: int) -> bool:
        link = ClusterLink.objects.select_related("destination__environment").get(pk=self.sides[side].pk)
        if move is E.RESTORE:
            rows = operate_many(link=link, names=[self.topic], operation=move, by=SYSTEM, now=NOW)
            return rows[0].error_code is None
        row = MirrorTopic.objects.select_related("link__destination__environment").filter(link=link, name=self.topic).first()
        if row is None:
            return False
        try:
            operate(mirror=row, operation=move, by=SYSTEM, now=NOW)
        except ConsoleError:
            return False
        # a promotion without a reversal leaves the source as it is: writable
        self.forked |= move in (E.FAILOVER, E.PROMOTE)
        return True

    def write(self) -> None:
        """Write to both sides: a mirror refuses, and without a failover at most one side accepts."""
        accepted = 0
        for side, cluster in enumerate(self.clusters):
            self._number += 1
            value, before = f"{self._number:05}", self.state(side)
            offset = write_record(cluster, self.topic, value)
            if offset is not None:
                accepted += 1
                self.acknowledged[value.encode()] = offset
                assert not {before, self.state(side)} <= CLOSED, f"a mirror that was {before} accepted a record"
        assert accepted <= 1 or self.forked, "both sides accepted a record"

    def state(self, side: int) -> str:
        row = MirrorTopic.objects.filter(link=self.sides[side], name=self.topic).first()
        return row.state if row else ""

    def settle(self) -> None:
        """Wait until no operation is in progress, unless a user has to decide."""
        self.drive(lambda: all(row.state in RESTING or row.transition_errors.exists() for row in MirrorTopic.objects.all()))
        self.forked &= not any(self.state(side) in CLOSED for side in (0, 1))  # ended by a restore

    def check(self) -> None:
        """Check that each acknowledged record exists once, at its offset, on a side or in a file, and mirrors are equal."""
        if S.ACTIVE in (self.state(0), self.state(1)):
            self.drive(lambda: records(self.clusters[0], self.topic) == records(self.clusters[1], self.topic))
        kept = [
            *(records(cluster, self.topic) for cluster in self.clusters),
            *map(exported, RestoreRun.objects.exclude(export_name="")),
        ]
        places: dict[bytes, set[int]] = {}
        for found in kept:
            assert len(set(found.values())) == len(found), "a record exists twice"
            for (_, offset), value in found.items():
                places.setdefault(value, set()).add(offset)
        assert {value: places.get(value) for value in self.acknowledged} == {
            value: {offset} for value, offset in self.acknowledged.items()
        }


def exported(run: RestoreRun) -> Records:
    with gzip.open(diverged_exports.path_of(run.export_name)) as file:
        lines = [json.loads(line) for line in file]
    return {(line["partition"], line["offset"]): base64.b64decode(line["value"]) for line in lines}


def walk_along(walk: Walk, *, disturb: Callable[[], object], walks: int, steps: int) -> None:
    """Take random steps; what ``disturb`` does to the workers after each must not matter.

    In most states most operations are refused, so a step tries several in random order until one is accepted.
    """
    chance, operations, accepted = random.Random(SEED), [(move, side) for move in MOVES for side in (0, 1)], 0
    for _ in range(tries(walks)):
        for _ in range(steps):
            accepted += any(_operate(walk, *operation) for operation in chance.sample(operations, TRIED))
            walk.write()
            disturb()
            if chance.random() < 0.5:
                walk.settle()
        walk.settle()
        walk.write()
        walk.check()
    assert accepted >= tries(walks)  # refusals alone test nothing


def _operate(walk: Walk, move: MirrorEvent, side: int) -> bool:
    accepted = walk.operate(move, side)
    print(f"{move} on side {side}: {'accepted' if accepted else 'refused'}")  # noqa: T201 - shown if the test fails
    return accepted


@pytest.mark.usefixtures("copier")
def test_random_walk_loses_no_record(
    twin: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("django.conf.settings.EXPORT_DIR", str(tmp_path))
    monkeypatch.setattr(locks, "LOCK_TTL_S", 1.0)
    monkeypatch.setattr(reverse_and_restore, "SETTLE_S", 0.3)
    walk = Walk(twin.name, pair, (destination_cluster, source_cluster), drive)

    walk_along(walk, disturb=lambda: None, walks=2, steps=5)


@pytest.mark.spark
@pytest.mark.usefixtures("sent", "spark_connect_url")
def test_random_walk_with_killed_workers_loses_no_record(
    twin: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    crashing_workers: CrashingWorkers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django.conf.settings.EXPORT_DIR", str(crashing_workers.exports))
    walk = Walk(twin.name, pair, (destination_cluster, source_cluster), crashing_workers.wait_for)

    walk_along(walk, disturb=crashing_workers.kill, walks=2, steps=5)
