"""Pages, REST, metrics and stops use the newest report in Redis, whatever row was stored last."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from console.actors import Actor
from console.config import signing_keys
from console.http.metrics import prometheus_text
from console.links.health_queries import link_readiness
from console.links.queries import list_links
from console.mirrors import progress
from console.mirrors.page_queries import mirror_page
from console.mirrors.queries import get_mirror, list_mirrors
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling import coverage, plans
from console.tasks.links import reconcile_link
from console.verification.report_actions import write_stop_reports
from console.workflows import stopping
from linkengine.coordination.client import client_for
from linkengine.coordination.progress import RedisProgress, signed_renewal, signed_report
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase, PartitionProgress, VerifyReport, topic_ids_of
from linkengine.domain.ranges import CheckedRange, hash_of
from linkengine.domain.states import MirrorState, StopReason
from tests.console.conftest import MakeMirror
from tests.console.observed import link_figures

AGO = timedelta(minutes=10)


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str, sent: Any) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/8"


@pytest.fixture
def mirror(make_mirror: MakeMirror) -> MirrorTopic:
    """Return a mirror with one partition, stored ten minutes ago, in sync at offset 10."""
    mirror = make_mirror(partitions=1, source_topic_id="there", mirror_topic_id="here")
    then = timezone.now() - AGO
    mirror.partitions.update(
        source_start=0,
        source_end=10,
        last_source_end=10,
        last_high_watermark=10,
        last_source_seen_at=then,
        mirror_start=0,
        mirror_end=10,
        caught_up_at=then,
        observed_at=then,
        copy_run_id="first",
        copy_run_bytes=100,
        copy_run_records=10,
        bytes_copied=100,
        records_copied=10,
        phase=PartitionPhase.COPYING,
        bytes_per_s=0.0,
        records_per_s=0.0,
    )
    return mirror


def report(mirror: MirrorTopic, **values: Any) -> PartitionProgress:
    now_ms = int(time.time() * 1000)
    known: dict[str, Any] = {
        "copy_run_id": "first",
        "phase": PartitionPhase.COPYING,
        "generation": 1,
        "source_start": 0,
        "source_end": 25,
        "source_high_watermark": 27,
        "source_seen_at_ms": now_ms,
        "mirror_start": 0,
        "mirror_end": 20,
        "caught_up_at_ms": now_ms - 2_000,
        "bytes_copied": 200,
        "records_copied": 20,
        "bytes_per_s": 50.0,
        "records_per_s": 5.0,
        "topic_ids": topic_ids_of("there", "here"),
        **values,
    }
    return PartitionProgress(key=f"{plans.mirror_key(mirror)}/0", observed_at_ms=now_ms, **known)


def publish(mirror: MirrorTopic, *reports: PartitionProgress) -> None:
    """Report as a copy worker, without storing the report in the database."""
    RedisProgress(django_settings.REDIS_URL, signing_keys.link_signer).report(plans.link_key(mirror.link), list(reports))


def row_of(mirror: MirrorTopic) -> MirrorPartition:
    (found,) = progress.current(MirrorTopic.objects.filter(pk=mirror.pk), now=timezone.now())
    (row,) = found.partitions
    return row


def test_figures_are_those_of_the_newest_report(mirror: MirrorTopic, link: ClusterLink, owner: Actor) -> None:
    publish(mirror, report(mirror))

    shown = get_mirror(cluster_id="destination-id", link_name=link.name, mirror_name=mirror.name, by=owner)
    (row,) = shown.partitions.all()
    (listed,), (linked,), (paged,) = list_mirrors(by=owner), list_links(by=owner), mirror_page(by=owner, order="-lag").rows
    figures = link_figures(link=link, by=owner)
    metrics = prometheus_text()

    assert (row.lag, row.held_back, row.mirror_end, row.bytes_copied) == (5, 2, 20, 200)
    assert {listed.max_lag, linked.max_lag, paged.max_lag, figures.max_lag} == {5}
    assert {listed.bytes_per_s, linked.bytes_per_s, paged.bytes_per_s, figures.bytes_per_s} == {50.0}
    assert (linked.unknown_lags, figures.unknown_lags, linked.lag_bytes) == (0, 0, 50)
    assert all(ms is not None and 2_000 <= ms < 20_000 for ms in (listed.lag_ms, linked.oldest_lag_ms, figures.oldest_lag_ms))
    place = f'{{cluster="destination-id",link="{link.name}"'
    assert f"clusterlink_max_lag_messages{place}}} 5.0" in metrics
    assert f'clusterlink_copied_bytes_total{place},topic="{mirror.name}"}} 200.0' in metrics
    stored = MirrorPartition.objects.get(mirror=mirror)
    assert (stored.mirror_end, stored.bytes_copied) == (10, 100)  # reading does not write


def test_an_idle_partition_is_as_old_as_the_last_renewal_of_its_report(
    mirror: MirrorTopic, link: ClusterLink, owner: Actor
) -> None:
    """A minute after its report; without a renewal its lag is unknown, never 0."""
    now_ms, key, client = int(time.time() * 1000), plans.link_key(link), client_for(django_settings.REDIS_URL)
    signer = signing_keys.link_signer(key)
    idle = report(mirror, source_end=20, source_high_watermark=20, caught_up_at_ms=now_ms)
    signed = signed_report(signer, key, idle, at_ms=now_ms - 60_000)
    client.delete(f"renewals:{key}")
    client.hset(f"progress:{key}", idle.key, f"{now_ms - 60_000} {signed}")

    def renew(ago_ms: int) -> None:
        name = signed.split(" ")[1][:16]
        client.hset(f"renewals:{key}", "worker", f"{now_ms} {signed_renewal(signer, key, name, at_ms=now_ms - ago_ms)}")

    def shown() -> tuple[int | None, int, list[int | None]]:
        row, (listed,) = row_of(mirror), list_mirrors(by=owner)
        age_ms = row.behind_ms(timezone.now())
        assert age_ms is not None
        return row.lag, age_ms // 1000 // 5 * 5, [listed.max_lag, list_links(by=owner)[0].max_lag]

    assert shown() == (None, 60, [None, None])
    renew(ago_ms=1_000)
    assert shown() == (0, 0, [0, 0])
    renew(ago_ms=20_000)  # the worker was killed 20 s ago, or has not observed the partition since
    assert shown() == (None, 20, [None, None])
    assert f'clusterlink_unknown_lag_partitions{{cluster="destination-id",link="{link.name}"}} 1.0' in prometheus_text()


def test_readiness_has_the_time_lag_of_the_newest_report(mirror: MirrorTopic, link: ClusterLink) -> None:
    before = link_readiness(link=link, now=timezone.now()).sentence

    publish(mirror, report(mirror))

    assert "time lag 10 min" in before  # since the stored row
    after = link_readiness(link=link, now=timezone.now()).sentence
    lag = re.search(r"time lag (\d+) s\b", after)
    assert lag is not None, after
    assert 2 <= int(lag[1]) < 20


def test_without_redis_stored_values_are_returned_with_their_times(
    mirror: MirrorTopic, link: ClusterLink, owner: Actor, settings: Any
) -> None:
    publish(mirror, report(mirror))
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    shown = get_mirror(cluster_id="destination-id", link_name=link.name, mirror_name=mirror.name, by=owner)
    (row,), (linked,) = shown.partitions.all(), list_links(by=owner)

    assert (row.mirror_end, row.bytes_copied, row.lag, row.missing, row.bytes_per_s) == (10, 100, None, None, None)
    assert row.observed_at is not None
    assert row.last_source_seen_at is not None
    assert min(timezone.now() - row.observed_at, timezone.now() - row.last_source_seen_at) >= AGO
    assert (linked.max_lag, linked.unknown_lags, linked.bytes_per_s) == (None, 1, None)


def test_without_redis_an_idle_partition_has_the_time_stored_for_its_link(
    mirror: MirrorTopic, link: ClusterLink, settings: Any
) -> None:
    seen_at = timezone.now() - timedelta(seconds=30)
    ClusterLink.objects.update(in_sync_at=seen_at)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert row_of(mirror).observed_at != seen_at
    mirror.partitions.update(behind=False)
    progress.Outage.until_s = 0.0
    assert row_of(mirror).observed_at == seen_at


def test_a_report_on_earlier_topics_is_ignored(mirror: MirrorTopic) -> None:
    publish(mirror, report(mirror, topic_ids=topic_ids_of("there", "before")))

    assert row_of(mirror).mirror_end == 10


def test_the_end_of_a_fenced_partition_is_not_taken_from_a_report(mirror: MirrorTopic) -> None:
    mirror.partitions.update(stopped_end=22, mirror_end=23)
    publish(mirror, report(mirror))

    assert row_of(mirror).mirror_end == 23


def test_bytes_copied_before_a_crash_are_counted_once(mirror: MirrorTopic, link: ClusterLink) -> None:
    publish(mirror, report(mirror, bytes_copied=150))
    publish(mirror, report(mirror, copy_run_id="second", generation=2, bytes_copied=7))

    assert row_of(mirror).bytes_copied == 157  # the last report of the first run is not stored: a counter must not fall
    reconcile_link(link_id=link.pk)
    assert MirrorPartition.objects.get(mirror=mirror).bytes_copied == 157
    assert row_of(mirror).bytes_copied == 157
    publish(mirror, report(mirror, copy_run_id="third", generation=3, bytes_copied=1))
    reconcile_link(link_id=link.pk)
    assert MirrorPartition.objects.get(mirror=mirror).bytes_copied == 158


def test_a_mirror_that_became_shorter_in_a_crash_is_detected_without_a_stored_end(
    mirror: MirrorTopic, link: ClusterLink
) -> None:
    checked = CheckedRange(partition=0, start=0, end=100, records=100, hash=hash_of(0, 100), differences=0)
    seen = VerifyReport(
        records_compared=1, differences=0, first_differences=(), bytes_compared=1, duration_ms=1, checked=(checked,)
    )
    coverage.note_report(mirror=mirror, report=seen, now=timezone.now())
    publish(mirror, report(mirror, mirror_end=120))
    publish(mirror, report(mirror, copy_run_id="second", generation=2, mirror_end=60))

    reconcile_link(link_id=link.pk)

    assert [(verified.start, verified.end) for verified in mirror.verified_ranges.all()] == [(0, 60)]


def test_a_failover_report_uses_the_newest_report_instead_of_the_stored_row(mirror: MirrorTopic) -> None:
    publish(mirror, report(mirror, phase=PartitionPhase.RELEASED))
    mirror.partitions.update(stopped_end=20)
    now = timezone.now()
    MirrorTopic.objects.filter(pk=mirror.pk).update(stop_reason=StopReason.FAILOVER, state_since=now)

    (found,) = write_stop_reports(mirrors=[MirrorTopic.objects.get(pk=mirror.pk)], now=now)

    (partition,) = found.partitions
    assert (partition["source_end"], partition["stable_end"], partition["outdated"]) == (27, 25, False)
    assert found.records_not_copied == 7


def test_a_failover_report_without_redis_marks_a_stored_sample_as_outdated(mirror: MirrorTopic, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    mirror.partitions.update(stopped_end=10)
    now = timezone.now()
    MirrorTopic.objects.filter(pk=mirror.pk).update(stop_reason=StopReason.FAILOVER, state_since=now)

    (found,) = write_stop_reports(mirrors=[MirrorTopic.objects.get(pk=mirror.pk)], now=now)

    assert found.partitions[0]["outdated"] is True
    assert found.records_not_copied is None


def test_reading_many_partitions_takes_one_query(mirror: MirrorTopic, django_assert_num_queries: Any) -> None:
    keyed = [replace(report(mirror), key=f"{plans.mirror_key(mirror)}/{number}") for number in range(3_000)]
    MirrorPartition.objects.bulk_create(MirrorPartition(mirror=mirror, partition=number) for number in range(1, 3_000))
    publish(mirror, *keyed)

    with django_assert_num_queries(1):
        (found,) = progress.current(MirrorTopic.objects.filter(pk=mirror.pk), now=timezone.now())

    assert {row.mirror_end for row in found.partitions} == {20}


def test_a_task_contacts_redis_again_immediately_after_an_outage_seen_by_a_page(mirror: MirrorTopic) -> None:
    publish(mirror, report(mirror))
    progress.Outage.until_s = time.monotonic() + 60
    chosen = MirrorTopic.objects.filter(pk=mirror.pk)

    (page,) = progress.current(chosen, now=timezone.now())
    (task,) = progress.current(chosen, now=timezone.now(), insist=True)

    assert (page.partitions[0].mirror_end, task.partitions[0].mirror_end) == (10, 20)


def test_a_promotion_reads_a_permanent_failure_that_is_not_stored_yet(mirror: MirrorTopic) -> None:
    publish(mirror, report(mirror, phase=PartitionPhase.FAILED, error_code="CORRUPT_RECORDS", error_message="Corrupt."))

    assert stopping.copy_failure(mirror) == {ErrorCode.CORRUPT_RECORDS: "Corrupt."}
    assert MirrorPartition.objects.get(mirror=mirror).phase == PartitionPhase.COPYING


def test_a_report_is_applied_although_in_sync_at_is_as_new(mirror: MirrorTopic) -> None:
    """The stored row is minutes old, and the link's ``in_sync_at`` is the time of this report."""
    values = report(mirror, source_end=20, source_high_watermark=20)
    publish(mirror, values)
    mirror.partitions.update(behind=False)
    ClusterLink.objects.update(in_sync_at=progress.time_of(values.observed_at_ms))

    assert row_of(mirror).lag == 0


@pytest.mark.parametrize("state", MirrorState)
def test_a_mirror_that_was_read_is_expected_as_in_the_database(mirror: MirrorTopic, state: MirrorState) -> None:
    for at, reason, partitions in product((None, timezone.now()), (StopReason.PROMOTE, StopReason.FAILOVER), (0, 1)):
        MirrorTopic.objects.update(state=state, drained_at=at, stop_reason=reason, num_partitions=partitions)
        mirror.refresh_from_db()

        in_database = MirrorTopic.objects.filter(progress.EXPECTED, pk=mirror.pk).exists()
        assert progress.is_expected(mirror) is in_database, (at, reason, partitions)
