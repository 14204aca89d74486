"""Losses that are no longer in any report: the copy worker crashed after it had written fillers, or before."""

from __future__ import annotations

import time

import pytest
from django.conf import settings

from console.config import signing_keys
from console.models import ClusterLink, GapRange, MirrorPartition, MirrorTopic, RestoreRun
from console.models.mirrors import RECORDS_LOST
from console.queue import transport
from console.reconciling import plans
from console.tasks.links import reconcile_link
from console.workflows import reverse_and_restore
from linkengine import jobs
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.mirrorjobs import MirrorCreated
from linkengine.domain.plans import PartitionPhase, PartitionProgress, topic_ids_of
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, MirrorState
from tests.console.conftest import NOW
from tests.signing import OTHER

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
    RedisProgress(settings.REDIS_URL, signing_keys.link_signer).report_loss(plans.link_key(mirror.link), (key, LOST))
    return key


def ledger(mirror: MirrorTopic) -> list[tuple[int, int, str, int | None, int | None]]:
    return list(GapRange.objects.filter(mirror=mirror).values_list("start", "end", "reason", "before_ms", "after_ms"))


def test_loss_of_a_crashed_copy_worker_is_stored_and_shown(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    lose(mirror)
    before = link.sequence

    reconcile_link(link_id=link.pk)

    assert ledger(mirror) == [(10, 1_400, GapReason.LOST, 500, None)]
    assert mirror.transition_errors.get().code == RECORDS_LOST
    assert jobs.read_losses(settings.REDIS_URL, plans.link_key(link), plans.signer_of(link)) == []
    link.refresh_from_db()
    assert link.sequence > before


def test_loss_that_the_next_copy_worker_reports_is_stored_once(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    key = lose(mirror)
    rest = Gap(OffsetRange(700, 1_400), GapReason.LOST, after_ms=900)  # the previous worker had written fillers up to 700
    progress = PartitionProgress(
        key=key,
        copy_run_id="next",
        phase=PartitionPhase.COPYING,
        observed_at_ms=time.time_ns() // 1_000_000,
        mirror_end=1_500,
        source_end=1_500,
        last_timestamp_ms=950,
        gaps=(rest,),
    )
    RedisProgress(settings.REDIS_URL, signing_keys.link_signer).report(plans.link_key(link), [progress])

    reconcile_link(link_id=link.pk)

    assert ledger(mirror) == [(10, 1_400, GapReason.LOST, 500, 900)]


def test_loss_of_another_mirror_is_left_for_it(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    other = (f"{plans.mirror_key(mirror)}0/0", LOST)
    RedisProgress(settings.REDIS_URL, signing_keys.link_signer).report_loss(plans.link_key(link), other)

    reconcile_link(link_id=link.pk)

    assert ledger(mirror) == []
    assert jobs.read_losses(settings.REDIS_URL, plans.link_key(link), plans.signer_of(link)) == [other]


def test_forged_reports_and_losses_in_redis_are_refused(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    (key,) = plans.partition_keys(mirror)
    before = transport.refused_counts()
    forged = PartitionProgress(
        key=key,
        copy_run_id="forged",
        phase=PartitionPhase.COPYING,
        observed_at_ms=1,
        source_end=5,
        mirror_end=5,
        gaps=(Gap(OffsetRange(0, 5), GapReason.LOST),),
        topic_ids=topic_ids_of(mirror.source_topic_id, mirror.mirror_topic_id),
    )
    stranger = RedisProgress(settings.REDIS_URL, lambda _: OTHER)
    stranger.report(plans.link_key(link), [forged])
    stranger.keep(plans.link_key(link), forged)
    stranger.report_loss(plans.link_key(link), (key, LOST))

    reconcile_link(link_id=link.pk)

    assert ledger(mirror) == []
    assert MirrorPartition.objects.get(mirror=mirror).mirror_end is None
    counted = {kind: number - before.get(kind, 0) for kind, number in transport.refused_counts().items()}
    assert (counted["report"], counted["loss"]) == (2, 1)


@pytest.mark.parametrize("in_place", [False, True], ids=["made anew", "in place"])
def test_loss_ends_with_the_log_that_has_it(link: ClusterLink, in_place: bool) -> None:
    mirror = mirror_of(link)
    lose(mirror)
    reconcile_link(link_id=link.pk)
    assert mirror.transition_errors.filter(code=RECORDS_LOST).exists()

    restore(mirror, in_place=in_place)

    assert bool(ledger(mirror)) == mirror.transition_errors.filter(code=RECORDS_LOST).exists() == in_place


def test_reports_on_a_deleted_log_do_not_count_for_the_new_one(link: ClusterLink) -> None:
    mirror = mirror_of(link)
    key = lose(mirror)  # not in the ledger yet
    report(mirror, key, topic_ids=topic_ids_of("source", "old"))
    restore(mirror)
    report(mirror, key, topic_ids=topic_ids_of("source", "old"))  # from a worker that does not have the new assignment yet

    reconcile_link(link_id=link.pk)
    assert ledger(mirror) == []

    report(mirror, key, topic_ids=topic_ids_of("source", "anew"))
    reconcile_link(link_id=link.pk)
    assert ledger(mirror) == [(700, 1_400, GapReason.HEAD, None, None)]


def report(mirror: MirrorTopic, key: str, *, topic_ids: str) -> None:
    progress = PartitionProgress(
        key=key,
        copy_run_id="old",
        phase=PartitionPhase.RELEASED,
        observed_at_ms=time.time_ns() // 1_000_000,
        gaps=(Gap(OffsetRange(700, 1_400), GapReason.HEAD),),
        topic_ids=topic_ids,
    )
    RedisProgress(settings.REDIS_URL, signing_keys.link_signer).report(plans.link_key(mirror.link), [progress])


def restore(mirror: MirrorTopic, *, in_place: bool = False) -> None:
    """Store that a restore has finished."""
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=MirrorState.PENDING_RESTORE_MIRROR, source_topic_id="source")
    run = RestoreRun.objects.create(mirror=mirror, requested_by="owner", requested_at=NOW, in_place=in_place)
    made = MirrorCreated(source_topic_id="source", mirror_topic_id="anew", partitions=1, read_only=True)
    row = plans.load(mirror.pk)
    assert row is not None
    reverse_and_restore._note_restored(row, run, made, now=NOW)
