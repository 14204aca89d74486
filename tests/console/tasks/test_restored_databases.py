"""The console's database was put back to a backup: what it does not remember of its mirrors, on real clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from console.actions.operations import operate
from console.actors import SYSTEM
from console.models import (
    ClusterLink,
    CopySlice,
    GroupOffset,
    LineageRange,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    SyncedGroup,
)
from console.reconciling import plans
from console.tasks import reconcile, stopping, topicconfigs
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.coordination.orders import RedisOrders
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.tasks.grouping import commit, offsets_of
from tests.console.tasks.reversal import Drive, fresh, set_up, state_of, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
S = MirrorState
Worker = Callable[[], None]


@pytest.fixture
def mirror(new_mirror: MirrorTopic) -> MirrorTopic:
    """A mirror that is set up."""
    return set_up(new_mirror)


def test_a_database_that_went_back_gives_orders_again_and_runs_no_task_before(
    mirror: MirrorTopic, link: ClusterLink, settings: Any, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    key, signer = plans.link_key(link), plans.signer_of(link)
    jobs.write_orders(settings.REDIS_URL, key, signer, revision=link.revision + 2, wanted={})

    for _ in range(2):
        reconcile.reconcile_link(link_id=link.pk)
    assert not CopySlice.objects.exists()
    assert "run_link_task" not in dict(sent)
    for _ in range(2):
        reconcile.reconcile_link(link_id=link.pk)

    link.refresh_from_db()
    assert "run_link_task" in dict(sent)
    orders = RedisOrders(settings.REDIS_URL, key, signer).read()
    assert orders is not None
    assert (orders.revision, orders.wanted) == (link.revision, {plans.mirror_key(mirror): True})
    assert CopySlice.objects.get().revision == link.revision


@pytest.mark.usefixtures("copier")
@pytest.mark.parametrize("found_by", ["copier", "TopicConfigsSync", "nobody"])
def test_a_mirror_that_was_stopped_after_the_backup_of_the_database_fails_and_is_left_to_its_applications(
    mirror: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive, found_by: str
) -> None:
    operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)
    stopping.advance_stop(mirror_id=mirror.pk)
    assert state_of(mirror) == S.STOPPED
    here, group = ClusterAdmin(mirror.link.destination.address), f"{mirror.name}-app"
    write(destination_cluster, mirror.name, "a", "b", "c")
    here.set_configs(mirror.name, {"retention.ms": "99000000"})
    configs = here.describe(mirror.name).configs
    commit(here, group, mirror.name, {0: 4})
    _put_back(mirror, group)

    if found_by == "TopicConfigsSync":
        assert [one.code for one in topicconfigs.follow_topics(mirror.link).errors] == ["MIRROR_WAS_STOPPED"]
    if found_by != "nobody":
        drive(lambda: state_of(mirror) == S.FAILED)
        assert MirrorTopic.objects.get().error_code == "MIRROR_WAS_STOPPED"
    operate(mirror=fresh(mirror), operation=MirrorEvent.FAILOVER, by=SYSTEM, now=timezone.now())
    stopping.advance_stop(mirror_id=mirror.pk)

    assert state_of(mirror) == S.STOPPED
    assert here.describe(mirror.name).configs == configs
    assert offsets_of(here, group, mirror.name) == {0: 4}
    assert not here.denies_writes(mirror.name)


def _put_back(mirror: MirrorTopic, group: str) -> None:
    """Leave the rows as a backup from before the stop has them: active, and an offset of the group carried over."""
    MirrorPartition.objects.update(stopped_end=None, fenced_end=None)
    MirrorTopic.objects.update(state=S.ACTIVE, stop_reason="", fencing_at=None, state_since=NOW)
    LineageRange.objects.update(closed_at=None)
    LinkConfig.objects.create(link=mirror.link, name="consumer.offset.sync.enable", value="true")
    row = SyncedGroup.objects.create(link=mirror.link, name=group, destination_name=group, status="SYNCED", listed_at=NOW)
    seen = {"source_offset": 2, "target": 0, "outcome": "EQUAL"}
    GroupOffset.objects.create(group=row, mirror=mirror, partition=0, **seen)
