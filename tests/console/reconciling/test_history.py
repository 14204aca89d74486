"""Samples for charts: their number is bounded, points are aggregated, and unknown figures stay unknown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.history.actions import every_ms, forget_old, keep_samples, summarize_samples
from console.history.queries import KEEP_LINKS, KEEP_MIRRORS, KEEP_SUMMARIES, POINTS, link_history, mirror_history
from console.models import ClusterLink, LinkSample, LinkSampleSummary, MirrorSample, MirrorSampleSummary
from linkengine.domain.states import MirrorState
from tests.console.api.actors import NOW
from tests.console.api.conftest import cluster, destination, environment, link, make_mirror, source

__all__ = ["cluster", "destination", "environment", "link", "make_mirror", "source"]
pytestmark = pytest.mark.django_db


def test_a_links_lag_is_its_worst_mirrors_and_its_rate_the_sum_of_all(link: ClusterLink, make_mirror: Any) -> None:
    mirrors = [make_mirror("orders", lags=((10, 4), (9, 9))), make_mirror("bills", lags=((10, 8),))]
    make_mirror("old", MirrorState.STOPPED, lags=((10, 0),))
    for mirror in mirrors:
        mirror.partitions.update(bytes_per_s=50.0)

    keep_samples(link=link, mirrors=list(link.mirrors.prefetch_related("partitions")), now=NOW)

    (whole,) = LinkSample.objects.all()
    assert (whole.lag, whole.bytes_per_s) == (6, 150.0)
    assert dict(MirrorSample.objects.values_list("mirror__name", "lag")) == {"orders": 6, "bills": 2}


def test_an_unknown_lag_of_a_mirror_makes_the_links_lag_unknown(link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("orders", lags=((10, 4),))
    make_mirror("bills", lags=(None,))

    keep_samples(link=link, mirrors=list(link.mirrors.prefetch_related("partitions")), now=NOW)

    assert LinkSample.objects.get().lag is None


def test_a_link_without_mirrors_has_no_history(link: ClusterLink) -> None:
    keep_samples(link=link, mirrors=[], now=NOW)
    assert not LinkSample.objects.exists()


def test_old_samples_are_deleted(link: ClusterLink, make_mirror: Any) -> None:
    mirror, moment = make_mirror("orders"), timedelta(seconds=1)
    for at in (NOW - KEEP_LINKS - moment, NOW - KEEP_LINKS + moment):
        LinkSample.objects.create(link=link, at=at)
    for at in (NOW - KEEP_MIRRORS - moment, NOW - KEEP_MIRRORS + moment):
        MirrorSample.objects.create(mirror=mirror, at=at)

    forget_old(now=NOW)

    assert (LinkSample.objects.count(), MirrorSample.objects.count()) == (1, 1)


def test_a_chart_has_few_points_each_with_its_largest_lag(link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    rows = [MirrorSample(mirror=mirror, at=NOW - timedelta(seconds=n), lag=n % 7, bytes_per_s=10.0) for n in range(1_200)]
    MirrorSample.objects.bulk_create(rows)

    points = mirror_history(mirror=mirror, span=timedelta(minutes=20), now=NOW)

    assert len(points) <= POINTS + 1
    assert {point.lag for point in points[1:-1]} == {6}
    assert {point.bytes_per_s for point in points} == {10.0}
    assert link_history(link=link, span=timedelta(hours=1), now=NOW) == []


def test_an_unknown_sample_makes_its_point_unknown(link: ClusterLink) -> None:
    for seconds, lag in ((10, 4), (9, None)):
        LinkSample.objects.create(link=link, at=NOW - timedelta(seconds=seconds), lag=lag)

    (point,) = link_history(link=link, span=timedelta(hours=24), now=NOW)

    assert (point.lag, point.bytes_per_s) == (None, None)


def test_links_of_many_mirrors_are_sampled_less_often() -> None:
    assert [every_ms(count) for count in (1, 500, 1_000, 10_000)] == [30_000, 30_000, 60_000, 90_000]


def sample_every_30_s(link: ClusterLink, *, since: timedelta, lags: dict[int, int | None]) -> None:
    """Write samples of the link up to NOW with lag 1, except at the given numbers."""
    count = int(since.total_seconds() // 30)
    start = NOW - since
    LinkSample.objects.bulk_create(
        LinkSample(link=link, at=start + timedelta(seconds=30 * number), lag=lags.get(number, 1), lag_ms=5, bytes_per_s=10.0)
        for number in range(count)
    )


def test_summaries_keep_the_largest_lag_and_count_unknown_samples(link: ClusterLink) -> None:
    sample_every_30_s(link, since=timedelta(hours=2), lags={3: 70, 4: None, 130: 9_000})

    summarize_samples(now=NOW)

    first = LinkSampleSummary.objects.filter(seconds=300).earliest("at")
    assert (first.at, first.samples, first.lag, first.unknown, first.unknown_ms) == (NOW - timedelta(hours=2), 10, 70, 1, 0)
    hours = LinkSampleSummary.objects.filter(seconds=3600).order_by("at")
    assert [(hour.samples, hour.lag, hour.unknown, hour.bytes_per_s) for hour in hours] == [
        (120, 70, 1, 10.0)
    ]  # the last hour has ended less than a minute ago
    summarize_samples(now=NOW + timedelta(minutes=2))
    assert [(hour.samples, hour.lag) for hour in hours.all()] == [(120, 70), (120, 9_000)]


def test_summary_of_time_without_samples_is_partly_unknown(link: ClusterLink) -> None:
    start = NOW - timedelta(hours=2)
    sample_every_30_s(link, since=timedelta(hours=2), lags={})
    LinkSample.objects.filter(at__gte=start + timedelta(minutes=10), at__lt=start + timedelta(minutes=20)).delete()

    summarize_samples(now=NOW)

    parts = LinkSampleSummary.objects.filter(seconds=300, at__lt=start + timedelta(minutes=30)).values_list("at", "unknown")
    minutes = {(at - start).total_seconds() / 60: unknown for at, unknown in parts}
    assert minutes == {0: 0, 5: 0, 10: 1, 20: 0, 25: 0}  # the last sample before the pause counts for two minutes
    hour = LinkSampleSummary.objects.get(seconds=3600)
    assert (hour.lag, hour.unknown > 0) == (1, True)


@pytest.mark.parametrize("apart_s", [31, 60, 90])
def test_summaries_of_every_sampling_interval_are_known(link: ClusterLink, apart_s: int) -> None:
    times = range(0, 7200, apart_s)
    LinkSample.objects.bulk_create(
        LinkSample(link=link, at=NOW - timedelta(seconds=seconds), lag=1, lag_ms=1) for seconds in times
    )

    summarize_samples(now=NOW)

    known = LinkSampleSummary.objects.filter(at__gte=NOW - timedelta(seconds=6600)).values_list("unknown", "unknown_ms")
    assert set(known) == {(0, 0)}


def test_summaries_are_written_once(link: ClusterLink) -> None:
    sample_every_30_s(link, since=timedelta(hours=3), lags={})
    summarize_samples(now=NOW)
    before = set(LinkSampleSummary.objects.values_list("pk", "samples"))

    LinkSample.objects.filter(at__lt=NOW - timedelta(hours=1)).delete()
    summarize_samples(now=NOW)

    assert set(LinkSampleSummary.objects.values_list("pk", "samples")) == before


def test_summaries_of_mirrors_are_separate(link: ClusterLink, make_mirror: Any) -> None:
    for name, lag in (("orders", 4), ("bills", 9)):
        MirrorSample.objects.create(mirror=make_mirror(name), at=NOW - timedelta(minutes=20), lag=lag)

    summarize_samples(now=NOW)

    found = MirrorSampleSummary.objects.filter(seconds=300).values_list("mirror__name", "lag", "samples")
    assert set(found) == {("orders", 4, 1), ("bills", 9, 1)}


def test_old_summaries_are_deleted(link: ClusterLink) -> None:
    moment = timedelta(seconds=1)
    for seconds, keep in KEEP_SUMMARIES.items():
        for at in (NOW - keep - moment, NOW - keep + moment):
            counts = {"samples": 1, "unknown": 0, "unknown_ms": 0}
            LinkSampleSummary.objects.create(link=link, at=at, seconds=seconds, **counts)

    forget_old(now=NOW)

    assert LinkSampleSummary.objects.count() == len(KEEP_SUMMARIES)


def test_history_is_complete_after_the_samples_were_deleted(link: ClusterLink) -> None:
    sample_every_30_s(link, since=timedelta(hours=40), lags={7: 500, 4_700: 800})
    for hours in range(40):
        summarize_samples(now=NOW - timedelta(hours=39 - hours))
    summarize_samples(now=NOW)
    forget_old(now=NOW)

    points = link_history(link=link, span=timedelta(days=7), now=NOW)

    assert max(point.lag or 0 for point in points) == 800
    assert points[0].lag == 500
    assert points[0].at < NOW - timedelta(hours=38)
    assert points[-1].at >= NOW - timedelta(hours=1)
