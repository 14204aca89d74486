"""A worker crashes right after many mirrors were fenced together, before it stores that; the rows lead to the right end.

The crash is an exception that nothing catches, in place of a call of the engine. In ``test_kills`` real workers are killed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.actors import SYSTEM
from console.mirrors import operation_actions
from console.mirrors.operation_actions import operate_many
from console.models import ClusterLink, MirrorTopic
from console.reconciling import due_tasks
from console.redis import locks
from console.tasks.mirrors import stop_many
from console.workflows import reverse_and_restore
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.kills import CrashError
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]
Die = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def quick(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EXPORT_DIR = str(tmp_path)
    monkeypatch.setattr(locks, "LOCK_TTL_S", 1.0)
    monkeypatch.setattr(reverse_and_restore, "SETTLE_S", 0.2)


@pytest.fixture
def die(monkeypatch: pytest.MonkeyPatch, worker: Callable[[], None]) -> Die:
    """Crash the worker once, "before" or "after" a call of the engine."""

    def arm(name: str, moment: str) -> None:
        real, armed = getattr(jobs, name), [True]

        def deadly(*args: Any, **kwargs: Any) -> Any:
            if moment == "before" and armed and armed.pop():
                raise CrashError
            result = real(*args, **kwargs)
            if moment == "after" and armed and armed.pop():
                raise CrashError
            return result

        monkeypatch.setattr(jobs, name, deadly)

    return arm


def test_bulk_failover_survives_a_crash_after_the_fences(
    twin: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive, die: Die, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_actions, "FEW", 1)
    monkeypatch.setattr(due_tasks, "MANY", 1)
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    die("stop_mirrors", "after")

    operate_many(link=twin.link, pattern=".*", operation=E.FAILOVER, by=SYSTEM, now=NOW)
    drive(lambda: states(twin) == [S.STOPPED])

    assert set(fresh(twin).partitions.values_list("stopped_end", flat=True)) == {100}
    assert write(destination_cluster, twin.name, "mine now") == [None]


def test_many_mirrors_are_stopped_in_one_task(
    twin: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_tasks, "MANY", 1)
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    request_operation(twin, E.FAILOVER)
    assert due_tasks.stopped_together([fresh(twin)]) == {twin.pk}

    stop_many(link_id=twin.link_id)

    assert states(twin) == [S.STOPPED]
    assert set(fresh(twin).partitions.values_list("stopped_end", flat=True)) == {100}
    assert write(destination_cluster, twin.name, "mine now") == [None]
    assert (0, 101) in records(destination_cluster, twin.name)
