"""What a slice said last, taken in by the next round of its link: totals, gaps and set-backs, of the mirror's present life."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.models import ClusterLink, CopySlice, MirrorPartition, MirrorTopic
from console.reconciling import coverage, plans, slicing
from console.tasks import endings, reconcile
from linkengine import jobs
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.coverage import CheckedRange, hash_of
from linkengine.domain.plans import PartitionPhase, PartitionProgress, VerifyReport, life_of
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason
from tests.console.conftest import NOW, MakeMirror

FILLED = (Gap(OffsetRange(3, 5), GapReason.ABORTED),)


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str, sent: Any) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/7"


@pytest.fixture
def mirror(make_mirror: MakeMirror) -> MirrorTopic:
    return make_mirror(partitions=1, source_topic_id="there", mirror_topic_id="here")


def said(mirror: MirrorTopic, slice_id: str, *, life: str = life_of("there", "here"), **told: Any) -> PartitionProgress:
    values = {"phase": PartitionPhase.COPYING, "observed_at_ms": int(timezone.now().timestamp() * 1000), **told}
    return PartitionProgress(key=f"{plans.mirror_key(mirror)}/0", slice_id=slice_id, life=life, **values)


def ended(link: ClusterLink, *outcomes: PartitionProgress) -> None:
    """A slice has answered."""
    now = timezone.now()
    row = CopySlice.objects.create(
        link=link, slice_id=outcomes[0].slice_id, revision=1, started_at=now - timedelta(minutes=1), ends_at=now,
        finished_at=now,
    )  # fmt: skip
    endings.keep(row, outcomes)


def reported(mirror: MirrorTopic, slice_id: str, **told: Any) -> None:
    """A task reports, and a round reads it."""
    sink = RedisProgress(reconcile.settings.REDIS_URL, plans.link_key(mirror.link), plans.signer_of(mirror.link))
    sink.report([said(mirror, slice_id, **told)])
    reconcile.reconcile_link(link_id=mirror.link_id)


def totals() -> tuple[int, int]:
    row = MirrorPartition.objects.get()
    return row.bytes_copied, row.records_copied


def test_what_a_slice_copied_after_the_last_report_that_was_read_is_counted(mirror: MirrorTopic, link: ClusterLink) -> None:
    reported(mirror, "one", generation=1, bytes_copied=100, records_copied=10)
    reported(mirror, "two", generation=2, bytes_copied=5, records_copied=1)
    ended(link, said(mirror, "one", bytes_copied=130, records_copied=13))
    time.sleep(0.25)  # else it is taken for the same report
    reported(mirror, "two", generation=2, bytes_copied=7, records_copied=2)

    assert totals() == (137, 15)
    assert not CopySlice.objects.exclude(endings="").exists()
    reconcile.reconcile_link(link_id=link.pk)
    assert totals() == (137, 15)


@pytest.mark.parametrize(("life", "known"), [(life_of("there", "here"), 1), (life_of("there", "before"), 0)])
def test_only_what_is_told_of_the_present_topics_gets_into_the_ledger(
    mirror: MirrorTopic, link: ClusterLink, life: str, known: int
) -> None:
    ended(link, said(mirror, "one", life=life, gaps=FILLED, bytes_copied=1))

    reconcile.reconcile_link(link_id=link.pk)

    assert mirror.gaps.count() == known


def test_a_set_back_in_the_last_second_of_a_slice_is_seen(mirror: MirrorTopic, link: ClusterLink) -> None:
    checked = CheckedRange(partition=0, start=0, end=100, records=100, hash=hash_of(0, 100), differences=0)
    seen = VerifyReport(
        records_compared=1, differences=0, first_differences=(), bytes_compared=1, duration_ms=1, checked=(checked,)
    )
    coverage.note_report(mirror=mirror, report=seen, now=NOW)
    reported(mirror, "two", generation=2, mirror_end=120)
    ended(link, said(mirror, "one", mirror_end=60, set_back_to=60, set_backs=1))

    reconcile.reconcile_link(link_id=link.pk)

    assert [(one.start, one.end) for one in mirror.verified_ranges.all()] == [(0, 60)]
    assert MirrorPartition.objects.get().mirror_end == 120


def test_an_end_that_lies_behind_is_no_set_back(mirror: MirrorTopic, link: ClusterLink) -> None:
    reported(mirror, "two", generation=2, mirror_end=120)
    ended(link, said(mirror, "one", mirror_end=60, bytes_copied=5))

    reconcile.reconcile_link(link_id=link.pk)

    mirror.refresh_from_db()
    assert mirror.doubted_at is None


def test_of_partitions_to_which_nothing_happened_nothing_is_kept(mirror: MirrorTopic, link: ClusterLink) -> None:
    ended(link, said(mirror, "one", mirror_end=60))

    assert not CopySlice.objects.exclude(endings="").exists()


def test_what_another_version_kept_is_let_go_of(mirror: MirrorTopic, link: ClusterLink) -> None:
    ended(link, said(mirror, "one", gaps=FILLED))
    CopySlice.objects.update(endings="unreadable\n" + jobs.write_report(said(mirror, "one", gaps=FILLED)))

    reconcile.reconcile_link(link_id=link.pk)

    assert mirror.gaps.count() == 1
    assert not CopySlice.objects.exclude(endings="").exists()


def test_a_slice_whose_ending_nobody_has_read_is_not_forgotten(mirror: MirrorTopic, link: ClusterLink) -> None:
    ended(link, said(mirror, "one", gaps=FILLED))
    later = timezone.now() + timedelta(days=1)

    slicing.forget_old(now=later)
    assert CopySlice.objects.count() == 1
    reconcile.reconcile_link(link_id=link.pk)
    slicing.forget_old(now=later)
    assert not CopySlice.objects.filter(slice_id="one").exists()
