"""The console's database was restored from a backup that lacks changes of its mirrors, on real clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from console.actors import SYSTEM
from console.config import signing_keys
from console.mirrors.operation_actions import operate
from console.models import (
    ClusterLink,
    CopyWorker,
    GroupOffset,
    LineageRange,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    SyncedGroup,
)
from console.reconciling import plans
from console.tasks.links import reconcile_link
from console.tasks.mirrors import advance_stop
from console.workflows import syncs
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.coordination.pool import RedisAssignments
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason
from linkengine.domain.workers import Heartbeat
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.console.conftest import NOW
from tests.console.workflows.grouping import commit, offsets_of
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, set_up, state_of, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
S = MirrorState
Worker = Callable[[], None]


@pytest.fixture
def mirror(new_mirror: MirrorTopic) -> MirrorTopic:
    """A mirror that has been set up."""
    return set_up(new_mirror)


def test_assignments_from_before_a_database_restore_are_replaced_at_once(
    mirror: MirrorTopic, link: ClusterLink, settings: Any, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    """An assignment written after the backup has a higher revision, but does not count more than the current assignment."""
    setup = jobs.setup_worker("0000-w", redis_url=settings.REDIS_URL, secrets=signing_keys.worker_secrets(), lease_ttl_ms=4_000)
    worker, key = RedisAssignments(setup), plans.link_key(link)
    worker.beat(Heartbeat(worker_id="0000-w"))
    later = replace(plans.empty_plan(key), revision=link.revision + 2)
    jobs.write_assignments(
        settings.REDIS_URL, key, {"0000-w": later}, secrets=signing_keys.worker_secrets(), applied={"0000-w": 1}
    )
    CopyWorker.objects.create(number=0, worker_id="0000-w")

    reconcile_link(link_id=link.pk)

    assigned = worker.read().plans[key]
    assert assigned.revision == link.revision
    assert [partition.key for partition in assigned.assignments] == plans.partition_keys(mirror)
    assert "run_link_task" in dict(sent)


@pytest.mark.usefixtures("copier")
@pytest.mark.parametrize("found_by", ["copy worker", "TopicConfigsSync", "none"])
def test_mirror_that_was_stopped_after_the_backup_fails_and_stays_as_it_is(
    mirror: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive, found_by: str
) -> None:
    operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)
    advance_stop(mirror_id=mirror.pk)
    assert state_of(mirror) == S.STOPPED
    here, group = ClusterAdmin(mirror.link.destination.address), f"{mirror.name}-app"
    write(destination_cluster, mirror.name, "a", "b", "c")
    here.set_configs(mirror.name, {"retention.ms": "99000000"})
    configs = here.describe(mirror.name).configs
    commit(here, group, mirror.name, {0: 4})
    _restore_database(mirror, group)

    if found_by == "TopicConfigsSync":
        assert [error.code for error in syncs.follow_topics(mirror.link).errors] == ["MIRROR_WAS_STOPPED"]
    if found_by != "none":
        drive(lambda: state_of(mirror) == S.FAILED)
        assert MirrorTopic.objects.get().error_code == "MIRROR_WAS_STOPPED"
    operate(mirror=fresh(mirror), operation=MirrorEvent.FAILOVER, by=SYSTEM, now=timezone.now())
    advance_stop(mirror_id=mirror.pk)

    assert state_of(mirror) == S.STOPPED
    assert here.describe(mirror.name).configs == configs
    assert offsets_of(here, group, mirror.name) == {0: 4}
    assert not here.denies_writes(mirror.name)


@pytest.mark.usefixtures("copier")
@pytest.mark.parametrize(
    ("gap_filler", "recorded"),
    [("markers", 2), ("markers", 1), ("transactions", 2)],
    ids=["guarded", "partly fenced", "unguarded"],
)
def test_groups_stay_where_applications_moved_them_after_a_stop_that_the_backup_shows_in_progress(
    mirror: MirrorTopic, destination_cluster: KafkaCluster, gap_filler: str, recorded: int
) -> None:
    """The backup has fences, all or some of them, but not that the stop was completed."""
    ClusterLink.objects.update(gap_filler=gap_filler)
    here, group = ClusterAdmin(mirror.link.destination.address), f"{mirror.name}-app"
    operate(mirror=fresh(mirror), operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)
    advance_stop(mirror_id=mirror.pk)
    assert state_of(mirror) == S.STOPPED
    if gap_filler == "transactions":  # set up as a guarded mirror
        here.allow_writes(mirror.name)
    ends = dict(mirror.partitions.values_list("partition", "fenced_end"))
    assert len(ends) == 2
    write(destination_cluster, mirror.name, "a", "b", "c")
    read = here.offsets(mirror.name, OffsetKind.END)[0]
    commit(here, group, mirror.name, {0: read})
    _restore_database(mirror, group)
    for number in sorted(ends)[:recorded]:
        MirrorPartition.objects.filter(mirror=mirror, partition=number).update(
            stopped_end=ends[number], fenced_end=ends[number]
        )
    stop = {"state": S.PENDING_STOPPED, "prior_state": S.ACTIVE, "stop_reason": StopReason.FAILOVER, "fencing_at": NOW}
    MirrorTopic.objects.update(**stop, restoring_configs=True)

    advance_stop(mirror_id=mirror.pk)

    assert state_of(mirror) == S.STOPPED, fresh(mirror).error_message
    assert offsets_of(here, group, mirror.name) == {0: read}


def _restore_database(mirror: MirrorTopic, group: str) -> None:
    """Set the rows as in a backup from before the stop: an active mirror, and a synced offset of the group."""
    MirrorPartition.objects.update(stopped_end=None, fenced_end=None)
    MirrorTopic.objects.update(state=S.ACTIVE, stop_reason="", fencing_at=None, state_since=NOW)
    LineageRange.objects.update(closed_at=None)
    LinkConfig.objects.create(link=mirror.link, name="consumer.offset.sync.enable", value="true")
    row = SyncedGroup.objects.create(link=mirror.link, name=group, destination_name=group, status="SYNCED", listed_at=NOW)
    seen = {"source_offset": 2, "target": 0, "outcome": "EQUAL"}
    GroupOffset.objects.create(group=row, mirror=mirror, partition=0, **seen)


@pytest.mark.usefixtures("copier")
def test_fences_recorded_before_the_topic_became_a_mirror_again_are_written_anew(
    twin: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, here: ClusterAdmin, drive: Drive
) -> None:
    """The backup was made in the middle of a stop. Since then the topic was written to, and is a mirror again."""
    topic, restored = twin.name, {"stopped_end": 100, "fenced_end": 100, "fence_epoch": 0}
    request_operation(twin, MirrorEvent.REVERSE_AND_START)
    other = MirrorTopic.objects.exclude(pk=twin.pk).get()
    drive(lambda: states(twin, other) == [S.STOPPED, S.ACTIVE])
    assert list(twin.partitions.values_list("stopped_end", "fenced_end")) == [(100, 100), (100, 100)]
    assert write(destination_cluster, topic, "at the destination") == [None]
    drive(lambda: len(records(source_cluster, topic)) == 201)
    request_operation(other, MirrorEvent.REVERSE_AND_START)
    drive(lambda: states(twin, other) == [S.ACTIVE, S.STOPPED])
    assert write(source_cluster, topic, "copied", "later") == [None, None]
    drive(lambda: len(records(destination_cluster, topic)) == 203)
    before = here.offsets(topic, OffsetKind.END)
    MirrorPartition.objects.filter(mirror=twin).update(**restored)
    stop = {"state": S.PENDING_STOPPED, "prior_state": S.ACTIVE, "stop_reason": StopReason.FAILOVER, "fencing_at": NOW}
    MirrorTopic.objects.filter(pk=twin.pk).update(**stop, restoring_configs=True)

    advance_stop(mirror_id=twin.pk)

    assert state_of(twin) == S.STOPPED, fresh(twin).error_message
    assert here.offsets(topic, OffsetKind.END) == {number: end + 1 for number, end in before.items()}
    assert list(twin.partitions.order_by("partition").values_list("stopped_end", "fenced_end")) == [
        (end, end) for _, end in sorted(before.items())
    ]
