"""Samples for charts: their number is bounded, points are aggregated, and unknown figures stay unknown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.models import ClusterLink, LinkSample, MirrorSample
from console.queries.history import POINTS, link_history, mirror_history
from console.reconciling.history import KEEP_LINKS, KEEP_MIRRORS, every_ms, forget_old, keep_samples
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
