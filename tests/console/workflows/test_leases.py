"""Leases that a stop or a deletion takes: renewed while it runs, released at its end."""

import time
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings

from console.models import ClusterLink, MirrorTopic
from console.reconciling import plans
from console.workflows import leases
from linkengine.coordination.lease import RedisLease
from linkengine.domain.states import MirrorState
from linkengine.domain.workers import Grant
from tests.console.conftest import NOW

pytestmark = pytest.mark.kafka
TTL_MS = 2_000  # a busy machine may stop a thread for a second


def test_leases_are_renewed_and_released_clean(link: ClusterLink, monkeypatch: Any) -> None:
    monkeypatch.setattr(plans, "TUNING", replace(plans.TUNING, lease_ttl_ms=TTL_MS))
    mirror = MirrorTopic.objects.create(
        link=link, name="kept", source_topic="kept", state=MirrorState.ACTIVE, num_partitions=2, state_since=NOW, created_at=NOW
    )
    keys = [partition.key for partition in plans.assignments_of(mirror)]
    other = RedisLease(settings.REDIS_URL, ttl_ms=TTL_MS)

    with leases.taken(mirror, wait_s=60) as taken:
        time.sleep(1.5 * TTL_MS / 1000)
        assert taken.complete
        assert not other.acquire_all(keys, "copier")

    grants = other.acquire_all(keys, "copier")
    assert [grant.key for grant in grants] == keys
    assert all(grant.clean and grant.generation > taken.generation for grant in grants)


def test_expired_lease_is_not_released_as_clean(link: ClusterLink, monkeypatch: Any) -> None:
    monkeypatch.setattr(plans, "TUNING", replace(plans.TUNING, lease_ttl_ms=TTL_MS))
    mirror = MirrorTopic.objects.create(
        link=link, name="left", source_topic="left", state=MirrorState.ACTIVE, num_partitions=1, state_since=NOW, created_at=NOW
    )
    (key,) = [partition.key for partition in plans.assignments_of(mirror)]
    assert RedisLease(settings.REDIS_URL, ttl_ms=300).acquire_all([key], "a copier that crashes")

    with leases.taken(mirror, wait_s=60) as taken:
        assert taken.complete  # the previous owner's lease has expired

    other, grants, deadline = RedisLease(settings.REDIS_URL, ttl_ms=300), list[Grant](), time.monotonic() + 30
    while not grants and time.monotonic() < deadline:
        grants = other.acquire_all([key], "the next copier")
    assert [grant.clean for grant in grants] == [False]
