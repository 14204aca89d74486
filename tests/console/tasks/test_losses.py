"""A loss that no report tells of any more: its copier died after it had written fillers, or before."""

from __future__ import annotations

import time

import pytest
from django.conf import settings

from console.models import ClusterLink, GapRange, MirrorPartition, MirrorTopic
from console.models.mirrors import RECORDS_LOST
from console.reconciling import plans
from console.tasks import reconcile
from linkengine import jobs
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, MirrorState
from tests.console.conftest import NOW

pytestmark = pytest.mark.kafka
LOST = OffsetRange(10, 1_400)


def mirror_of(link: ClusterLink) -> MirrorTopic:
    dated = {"state_since": NOW, "created_at": NOW}
    topic = MirrorTopic.objects.create(
        link=link, name="a", source_topic="a", state=MirrorState.ACTIVE, num_partitions=1, **dated
    )
    MirrorPartition.objects.create(mirror=topic, partition=0, last_timestamp_ms=500)
    return topic


def lose(mirror: MirrorTopic) -> str:
    (key,) = plans.partition_keys(mirror)
    RedisProgress(settings.REDIS_URL, plans.link_key(mirror.link)).lose((key, LOST))
    return key


def ledger(mirror: MirrorTopic) -> list[tuple[int, int, str, int | None, int | None]]:
    return list(GapRange.objects.filter(mirror=mirror).values_list("start", "end", "reason", "before_ms", "after_ms"))


def test_what_a_dead_copier_lost_comes_into_the_ledger_and_is_shown(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    lose(mirror)
    before = link.sequence

    reconcile.reconcile_link(link_id=link.pk)

    assert ledger(mirror) == [(10, 1_400, GapReason.LOST, 500, None)]
    assert mirror.transition_errors.get().code == RECORDS_LOST
    assert jobs.read_losses(settings.REDIS_URL, plans.link_key(link)) == []
    link.refresh_from_db()
    assert link.sequence > before


def test_who_goes_on_after_it_reports_the_same_loss(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    key = lose(mirror)
    rest = Gap(OffsetRange(700, 1_400), GapReason.LOST, after_ms=900)  # the one before it had written fillers up to here
    told = PartitionProgress(
        key=key,
        slice_id="next",
        phase=PartitionPhase.COPYING,
        observed_at_ms=time.time_ns() // 1_000_000,
        mirror_end=1_500,
        source_end=1_500,
        last_timestamp_ms=950,
        gaps=(rest,),
    )
    RedisProgress(settings.REDIS_URL, plans.link_key(link)).report([told])

    reconcile.reconcile_link(link_id=link.pk)

    assert ledger(mirror) == [(10, 1_400, GapReason.LOST, 500, 900)]


def test_a_loss_of_another_mirror_is_left_to_it(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    other = (f"{plans.mirror_key(mirror)}0/0", LOST)
    RedisProgress(settings.REDIS_URL, plans.link_key(link)).lose(other)

    reconcile.reconcile_link(link_id=link.pk)

    assert ledger(mirror) == []
    assert jobs.read_losses(settings.REDIS_URL, plans.link_key(link)) == [other]
