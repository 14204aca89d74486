"""Kept reports of released leases are processed by the next pass of their link: totals, gaps and losses."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from console.config import signing_keys
from console.mirrors import progress
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import coverage, plans
from console.tasks.links import reconcile_link
from linkengine import jobs
from linkengine.coordination.client import client_for
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.plans import PartitionPhase, PartitionProgress, VerifyReport, topic_ids_of
from linkengine.domain.ranges import CheckedRange, Gap, OffsetRange, hash_of
from linkengine.domain.states import GapReason
from tests.console.conftest import NOW, MakeMirror

FILLED = (Gap(OffsetRange(3, 5), GapReason.ABORTED),)


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str, sent: Any) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/7"


@pytest.fixture
def mirror(make_mirror: MakeMirror) -> MirrorTopic:
    return make_mirror(partitions=1, source_topic_id="there", mirror_topic_id="here")


def progress_of(
    mirror: MirrorTopic, copy_run_id: str, *, topic_ids: str = topic_ids_of("there", "here"), **changes: Any
) -> PartitionProgress:
    values = {"phase": PartitionPhase.COPYING, "observed_at_ms": int(timezone.now().timestamp() * 1000), **changes}
    return PartitionProgress(key=f"{plans.mirror_key(mirror)}/0", copy_run_id=copy_run_id, topic_ids=topic_ids, **values)


def ended(link: ClusterLink, *outcomes: PartitionProgress) -> None:
    """Store reports of a copy worker that has released partitions."""
    for outcome in outcomes:
        RedisProgress(django_settings.REDIS_URL, signing_keys.link_signer).keep(plans.link_key(link), outcome)


def kept(link: ClusterLink) -> list[str]:
    return list(jobs.read_kept(django_settings.REDIS_URL, plans.link_key(link), plans.signer_of(link)))


def reported(mirror: MirrorTopic, copy_run_id: str, **changes: Any) -> None:
    """Report as a worker, and run a pass that reads it."""
    sink = RedisProgress(django_settings.REDIS_URL, signing_keys.link_signer)
    sink.report(plans.link_key(mirror.link), [progress_of(mirror, copy_run_id, **changes)])
    reconcile_link(link_id=mirror.link_id)


def totals() -> tuple[int, int]:
    (mirror,) = progress.current(MirrorTopic.objects.all(), now=timezone.now())
    (row,) = mirror.partitions
    return row.bytes_copied, row.records_copied


def test_records_copied_after_the_last_report_are_counted(mirror: MirrorTopic, link: ClusterLink) -> None:
    reported(mirror, "one", generation=1, bytes_copied=100, records_copied=10)
    reported(mirror, "two", generation=2, bytes_copied=5, records_copied=1)
    ended(link, progress_of(mirror, "one", bytes_copied=130, records_copied=13))
    time.sleep(0.25)  # otherwise it counts as the same report
    reported(mirror, "two", generation=2, bytes_copied=7, records_copied=2)

    assert totals() == (137, 15)
    assert not kept(link)
    reconcile_link(link_id=link.pk)
    assert totals() == (137, 15)


@pytest.mark.parametrize(("topic_ids", "known"), [(topic_ids_of("there", "here"), 1), (topic_ids_of("there", "before"), 0)])
def test_only_reports_on_the_current_topics_get_into_the_ledger(
    mirror: MirrorTopic, link: ClusterLink, topic_ids: str, known: int
) -> None:
    ended(link, progress_of(mirror, "one", topic_ids=topic_ids, gaps=FILLED, bytes_copied=1))

    reconcile_link(link_id=link.pk)

    assert mirror.gaps.count() == known


def test_loss_in_the_last_report_of_a_lease_is_found(mirror: MirrorTopic, link: ClusterLink) -> None:
    checked = CheckedRange(partition=0, start=0, end=100, records=100, hash=hash_of(0, 100), differences=0)
    seen = VerifyReport(
        records_compared=1, differences=0, first_differences=(), bytes_compared=1, duration_ms=1, checked=(checked,)
    )
    coverage.note_report(mirror=mirror, report=seen, now=NOW)
    reported(mirror, "two", generation=2, mirror_end=120)
    ended(link, progress_of(mirror, "one", mirror_end=60, set_back_to=60, set_backs=1))

    reconcile_link(link_id=link.pk)

    assert [(row.start, row.end) for row in mirror.verified_ranges.all()] == [(0, 60)]
    assert MirrorPartition.objects.get().mirror_end == 120


def test_lower_end_in_an_old_report_is_not_a_loss(mirror: MirrorTopic, link: ClusterLink) -> None:
    reported(mirror, "two", generation=2, mirror_end=120)
    ended(link, progress_of(mirror, "one", mirror_end=60, bytes_copied=5))

    reconcile_link(link_id=link.pk)

    mirror.refresh_from_db()
    assert mirror.ranges_removed_at is None


def test_kept_report_of_a_lease_that_continues_is_counted_once(mirror: MirrorTopic, link: ClusterLink) -> None:
    reported(mirror, "one", generation=1, bytes_copied=100, records_copied=10)
    ended(link, progress_of(mirror, "one", bytes_copied=60, records_copied=6, gaps=FILLED))
    reconcile_link(link_id=link.pk)
    time.sleep(0.25)  # otherwise it counts as the same report
    reported(mirror, "one", generation=1, bytes_copied=120, records_copied=12)

    assert totals() == (120, 12)
    assert mirror.gaps.count() == 1


def test_kept_report_of_another_version_is_deleted(mirror: MirrorTopic, link: ClusterLink) -> None:
    ended(link, progress_of(mirror, "one", gaps=FILLED))
    client_for(django_settings.REDIS_URL).hset(f"kept:{plans.link_key(link)}", "m/0 s 1", "unreadable")

    reconcile_link(link_id=link.pk)

    assert mirror.gaps.count() == 1
    assert not kept(link)
