"""REST API of lag and throughput over time."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.models import ClusterLink, LinkSample, MirrorSample
from tests.console.api.actors import DESTINATION, Rest

pytestmark = pytest.mark.django_db
LINK = f"/api/v1/clusters/{DESTINATION}/links/from-source"


def test_points_are_listed_oldest_first_and_unknown_is_null(owner: Rest, link: ClusterLink, make_mirror: Any) -> None:
    now, mirror = timezone.now(), make_mirror("orders")
    for minutes, lag in ((90, 1), (40, None), (10, 7)):
        at = now - timedelta(minutes=minutes)
        LinkSample.objects.create(link=link, at=at, lag=lag, bytes_per_s=2.5)
        MirrorSample.objects.create(mirror=mirror, at=at, lag=lag)

    hour = owner.get(f"{LINK}/history").json()["data"]
    two_hours = owner.get(f"{LINK}/mirrors/orders/history?span=2h").json()["data"]

    assert [(point["lag"], point["bytes_per_s"]) for point in hour] == [(None, 2.5), (7, 2.5)]
    assert [(point["lag"], point["bytes_per_s"]) for point in two_hours] == [(1, None), (None, None), (7, None)]


def test_an_unknown_span_is_refused(owner: Rest, link: ClusterLink) -> None:
    assert owner.get(f"{LINK}/history?span=9y").status_code == 400
