"""Consumer groups on real clusters: a sync that has read offsets is overtaken by a change before it writes any."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from console.actors import SYSTEM
from console.mirrors.operation_actions import operate
from console.models import GroupOffset, LinkTask, MirrorTopic, SyncedGroup
from console.tasks.mirrors import advance_stop
from console.workflows import stopping
from devcluster.kafka import KafkaCluster
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.workflows.conftest import Until
from tests.console.workflows.grouping import checks_of, commit, copy_in, fill, offsets_of, release_cleanly, run
from tests.console.workflows.groups.conftest import Interleave
from tests.exactlyonce import open_transaction

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_sync_in_progress_does_not_move_groups_past_the_fence_of_a_failover(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, meanwhile: Interleave, fail_over: Callable[[], None]
) -> None:
    group = f"{mirror.name}-app"
    commit(there, group, mirror.name, {0: 20, 1: 95})
    run(mirror)
    commit(there, group, mirror.name, {0: 50, 1: 100})
    meanwhile(fail_over)

    run(mirror)

    assert offsets_of(here, group, mirror.name) == {0: 20, 1: 60}  # as the failover left it
    assert dict(GroupOffset.objects.values_list("partition", "source_offset")) == {0: 20, 1: 95}
    assert SyncedGroup.objects.get(name=group).status == GroupStatus.NO_MIRROR_TOPIC


def test_promotion_check_that_a_failover_overtakes_moves_no_group_and_leaves_no_error(
    mirror: MirrorTopic,
    there: ClusterAdmin,
    here: ClusterAdmin,
    destination_cluster: KafkaCluster,
    meanwhile: Interleave,
    fail_over: Callable[[], None],
) -> None:
    group = f"{mirror.name}-app"
    copy_in(destination_cluster, mirror, records=range(60, 100))
    commit(there, group, mirror.name, {0: 20, 1: 95})
    run(mirror)
    commit(there, group, mirror.name, {0: 50, 1: 130})  # written and read there after the lag was checked
    operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)
    meanwhile(fail_over)

    advance_stop(mirror_id=mirror.pk)

    assert offsets_of(here, group, mirror.name) == {0: 20, 1: 95}
    assert not mirror.transition_errors.exists()
    assert mirror.stop_reports.get().reason == "failover"


def test_gate_that_a_failover_overtakes_moves_no_group_and_is_red(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, meanwhile: Interleave, fail_over: Callable[[], None]
) -> None:
    group = f"{mirror.name}-app"
    commit(there, group, mirror.name, {0: 20, 1: 95})
    run(mirror)
    commit(there, group, mirror.name, {0: 50, 1: 100})
    LinkTask.objects.create(link=mirror.link, name="ConsumerOffsetSync", finished_at=NOW)
    meanwhile(fail_over)

    (state, detail), _ = checks_of(mirror)

    assert state == "FAILED"
    assert "was failed over, has failed or is being deleted" in detail
    assert offsets_of(here, group, mirror.name) == {0: 20, 1: 60}


def test_gate_and_promotion_wait_for_an_offset_in_an_open_transaction(
    mirror: MirrorTopic,
    there: ClusterAdmin,
    here: ClusterAdmin,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exactly-once application was stopped so quickly that its last transaction has not ended yet."""
    monkeypatch.setattr(stopping, "DRAIN_S", 0.5)
    group = f"{mirror.name}-app"
    fill(destination_cluster, mirror.name, records=range(60, 100))
    release_cleanly(mirror, end=100)
    commit(there, group, mirror.name, {0: 70, 1: 80})
    LinkTask.objects.create(link=mirror.link, name="ConsumerOffsetSync", finished_at=NOW)

    def state() -> str:
        advance_stop(mirror_id=mirror.pk)
        return MirrorTopic.objects.get(pk=mirror.pk).state

    with open_transaction(source_cluster, group, mirror.name, {0: 100}) as commit_transaction:
        (gate, _), _ = checks_of(mirror)
        operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)
        waiting = state()
        error = mirror.transition_errors.get()
        commit_transaction()
    until(lambda: state() == MirrorState.STOPPED)

    assert (gate, waiting, error.code) == ("FAILED", MirrorState.PENDING_STOPPED, "WAITING_FOR_GROUPS")
    assert group in error.message
    assert "A transaction that commits offsets of the group has not ended" in error.message
    assert offsets_of(here, group, mirror.name) == {0: 100, 1: 80}


@pytest.fixture
def replaced_source(mirror: MirrorTopic, there: ClusterAdmin) -> str:
    """The name of a group at offset 40 of a PAUSED mirror; then the source topic was created anew and the group committed 3."""
    group = f"{mirror.name}-app"
    commit(there, group, mirror.name, {0: 40})
    run(mirror)
    MirrorTopic.objects.update(state=MirrorState.PAUSED)
    mirror.refresh_from_db()
    LinkTask.objects.create(link=mirror.link, name="ConsumerOffsetSync", finished_at=NOW)
    there.delete_topic(mirror.name)
    there.create_topic(mirror.name, partitions=2)
    commit(there, group, mirror.name, {0: 3})
    return group


def test_offsets_of_a_source_created_anew_are_not_synced_while_a_promotion_waits(
    mirror: MirrorTopic, replaced_source: str, here: ClusterAdmin
) -> None:
    operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)

    advance_stop(mirror_id=mirror.pk)
    run(mirror)

    assert mirror.transition_errors.get().code == "SOURCE_TOPIC_ID_CHANGED"
    assert offsets_of(here, replaced_source, mirror.name) == {0: 40}
    assert list(GroupOffset.objects.values_list("acted_source", "acted_destination")) == [(40, 40)]  # used by a failover


def test_gate_does_not_sync_offsets_of_a_source_created_anew(
    mirror: MirrorTopic, replaced_source: str, here: ClusterAdmin
) -> None:
    (state, detail), _ = checks_of(mirror)

    assert state == "FAILED"
    assert "was deleted and created again" in detail
    assert offsets_of(here, replaced_source, mirror.name) == {0: 40}
