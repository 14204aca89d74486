"""Health from current progress: silence, lag, errors and tasks of mirrors."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from console.actors import ENGINE, Actor
from console.links import health_queries
from console.links.health_queries import (
    LinkHealth,
    Observation,
    health_of_mirror,
    health_of_mirrors,
    links_health,
    observe_links,
)
from console.links.queries import list_links
from console.links.task_queries import failing_rows
from console.mirrors import progress
from console.models import Cluster, ClusterLink, LinkTask, MirrorPartition, MirrorTopic
from linkengine.domain.health import Health, Reason
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW as BEGAN
from tests.console.conftest import MakeActor, MakeMirror, Role

NOW = BEGAN + timedelta(hours=1)
Change = Callable[[MirrorTopic], object]


def ago(seconds: float) -> Any:
    return NOW - timedelta(seconds=seconds)


def report(mirror: MirrorTopic, **fields: Any) -> MirrorTopic:
    seen = {
        "observed_at": ago(1),
        "last_source_seen_at": ago(1),
        "caught_up_at": ago(1),
        "phase": "COPYING",
        "bytes_per_s": 0.0,
    }
    mirror.partitions.update(**(seen | fields))
    return mirror


def health_of(link: ClusterLink) -> LinkHealth:
    link = ClusterLink.objects.get(pk=link.pk)
    return links_health([link], link.mirrors.all(), now=NOW, failing=failing_rows(links=[link]), shown=[link.pk])[link.pk]


def one_partition(mirror: MirrorTopic, **fields: Any) -> int:
    return mirror.partitions.filter(partition=1).update(**fields)


def objective(mirror: MirrorTopic) -> object:
    return mirror.link.configs.create(name="link.rpo.objective.ms", value="5000")


def task_error(mirror: MirrorTopic) -> None:
    errors = [{"code": "AUTHORIZATION_ERROR", "message": "orders: The cluster refused DESCRIBE_CONFIGS."}]
    LinkTask.objects.create(link=mirror.link, name="TopicConfigsSync", error_count=1, errors=errors)


def alarm(mirror: MirrorTopic, code: str = "RECORDS_LOST") -> None:
    mirror.transition_errors.create(code=code, message="x", since=NOW, last_seen_at=NOW)


def behind(mirror: MirrorTopic, **fields: Any) -> int:
    return one_partition(mirror, source_end=99, last_high_watermark=99, **fields)


CASES: dict[str, tuple[Change, Health, Reason]] = {
    "all is copied": (lambda _mirror: None, Health.HEALTHY, Reason.COPYING),
    "engine stopped 20 s ago": (lambda mirror: report(mirror, observed_at=ago(20)), Health.UNKNOWN, Reason.REPORT_OVERDUE),
    "engine stopped 15 min ago": (lambda mirror: report(mirror, observed_at=ago(900)), Health.NOT_COPYING, Reason.SILENT),
    "one partition silent": (lambda mirror: one_partition(mirror, observed_at=ago(70)), Health.NOT_COPYING, Reason.SILENT),
    "never reported": (lambda mirror: report(mirror, observed_at=None), Health.NOT_COPYING, Reason.SILENT),
    "clock set back": (lambda mirror: report(mirror, observed_at=ago(-60)), Health.NOT_COPYING, Reason.SILENT),
    "no partition rows": (lambda mirror: mirror.partitions.all().delete(), Health.NOT_COPYING, Reason.SILENT),
    "one row missing": (lambda mirror: mirror.partitions.get(partition=0).delete(), Health.UNKNOWN, Reason.LAG_UNKNOWN),
    "source unseen": (lambda mirror: one_partition(mirror, last_source_seen_at=ago(16)), Health.UNKNOWN, Reason.LAG_UNKNOWN),
    "unreachable": (lambda mirror: one_partition(mirror, phase="DESTINATION_UNREACHABLE"), Health.NOT_COPYING, Reason.BLOCKED),
    "waiting": (lambda mirror: behind(mirror, phase="WAITING", caught_up_at=ago(20)), Health.UNKNOWN, Reason.WAITING),
    "stalled": (lambda mirror: behind(mirror, caught_up_at=ago(61)), Health.NOT_COPYING, Reason.STALLED),
    "late, being copied": (
        lambda mirror: behind(mirror, caught_up_at=ago(61), bytes_per_s=9.0),
        Health.HEALTHY,
        Reason.COPYING,
    ),
    "first copy": (lambda mirror: behind(mirror, caught_up_at=None), Health.CHANGING, Reason.FIRST_COPY),
    "beyond objective": (
        lambda mirror: (objective(mirror), behind(mirror, caught_up_at=ago(6))),
        Health.DEGRADED,
        Reason.LAG_BEYOND_OBJECTIVE,
    ),
    "within objective": (objective, Health.HEALTHY, Reason.COPYING),
    "alarm": (alarm, Health.DEGRADED, Reason.ALARM),
    "error": (lambda mirror: alarm(mirror, "TIMEOUT_ERROR"), Health.DEGRADED, Reason.ERROR),
    "condition that is waited for": (lambda mirror: alarm(mirror, "WAITING_FOR_LAG"), Health.HEALTHY, Reason.COPYING),
    "task names it": (task_error, Health.DEGRADED, Reason.TASK_ERROR),
    "other side of the link missing": (
        lambda mirror: ClusterLink.objects.update(error_code="REMOTE_LINK_NOT_FOUND_ERROR"),
        Health.NOT_COPYING,
        Reason.LINK_FAILED,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_link_and_mirror_have_the_health_that_their_rows_show(link: ClusterLink, make_mirror: MakeMirror, case: str) -> None:
    change, health, reason = CASES[case]
    mirror = report(make_mirror())

    change(mirror)

    found = health_of(link)
    status = found.mirrors[mirror.pk].status
    assert (status.health, status.reason) == (health, reason)
    assert found.status.health is health
    same = MirrorTopic.objects.select_related("link").prefetch_related("partitions", "transition_errors").get()
    progress.refresh([same], now=NOW)
    assert health_of_mirror(same, now=NOW) == (status, found.mirrors[mirror.pk].task_error)
    assert health_of_mirrors(ClusterLink.objects.get(), [same], now=NOW) == {mirror.pk: status}


def test_task_error_degrades_the_mirror_that_it_names_only(link: ClusterLink, make_mirror: MakeMirror) -> None:
    orders, payments = report(make_mirror("orders")), report(make_mirror("payments"))
    task_error(orders)

    found = health_of(link)

    assert found.mirrors[orders.pk].status.codes == ("AUTHORIZATION_ERROR",)
    assert found.mirrors[payments.pk].status.health is Health.HEALTHY


def test_errors_of_the_config_sync_end_when_the_last_mirror_is_stopped(link: ClusterLink, make_mirror: MakeMirror) -> None:
    task_error(report(make_mirror()))
    link.configs.create(name="acl.sync.enable", value="true")
    LinkTask.objects.create(link=link, name="AclSync", error_count=1)
    assert {row.name for row in failing_rows(links=[link])[link.pk]} == {"TopicConfigsSync", "AclSync"}

    link.mirrors.update(state=MirrorState.STOPPED)

    fresh = ClusterLink.objects.get(pk=link.pk)
    assert [row.name for row in failing_rows(links=[fresh])[link.pk]] == ["AclSync"]


def test_engine_error_concerns_mirrors_with_unreported_partitions(link: ClusterLink, make_mirror: MakeMirror) -> None:
    copied, silent = report(make_mirror("copied")), report(make_mirror("silent"))
    one_partition(silent, observed_at=ago(6))
    ClusterLink.objects.update(engine_error="Copy engine unavailable: No Spark.")

    found = health_of(link)

    assert found.mirrors[copied.pk].status.health is Health.HEALTHY
    assert found.mirrors[silent.pk].status.reason is Reason.NO_COPY_WORKER
    report(silent)
    assert (health_of(link).status.health, health_of(link).status.reason) == (Health.DEGRADED, Reason.ENGINE_ERROR)


def test_link_has_the_health_of_its_worst_mirror(link: ClusterLink, make_mirror: MakeMirror) -> None:
    report(make_mirror("orders"))
    report(make_mirror("paused", MirrorState.PAUSED))
    report(make_mirror("stopped", MirrorState.STOPPED))
    assert health_of(link).status.health is Health.PAUSED

    report(make_mirror("silent"), observed_at=ago(900))

    found = health_of(link)
    assert (found.status.health, found.attention) == (Health.NOT_COPYING, 1)
    assert found.counts == {Health.HEALTHY: 1, Health.PAUSED: 1, Health.STOPPED: 1, Health.NOT_COPYING: 1}


def test_several_errors_of_a_mirror_count_once(link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = report(make_mirror())
    alarm(mirror, "TIMEOUT_ERROR")
    alarm(mirror, "RECORDS_LOST")

    found = health_of(link)

    assert [health.status.codes for health in found.mirrors.values()] == [("RECORDS_LOST",)]


def test_a_thousand_mirrors_need_two_queries(link: ClusterLink, django_assert_num_queries: Any) -> None:
    mirrors = MirrorTopic.objects.bulk_create(
        MirrorTopic(
            link=link, name=f"m{n}", source_topic=f"m{n}", state="ACTIVE", state_since=BEGAN, created_at=BEGAN, num_partitions=3
        )
        for n in range(1000)
    )
    MirrorPartition.objects.bulk_create(
        MirrorPartition(
            mirror=mirror,
            partition=n,
            source_end=9,
            mirror_end=9,
            last_high_watermark=9,
            last_source_seen_at=ago(1),
            observed_at=ago(1),
            phase="COPYING",
        )
        for mirror in mirrors
        for n in range(3)
    )
    with django_assert_num_queries(2):
        links_health([link], MirrorTopic.objects.all(), now=NOW, failing={}, shown=[])

    begun = time.perf_counter()
    found = links_health([link], MirrorTopic.objects.all(), now=NOW, failing={}, shown=[])[link.pk]
    took_ms = (time.perf_counter() - begun) * 1000

    print(f"1,000 mirrors: {took_ms:.0f} ms")  # noqa: T201 - a measurement
    assert found.counts == {Health.HEALTHY: 1000}


def test_health_is_of_the_mirrors_that_the_actor_may_see(link: ClusterLink, make_mirror: MakeMirror) -> None:
    report(make_mirror())
    (summary,) = list_links(by=ENGINE)

    assert summary.health.status.health is Health.NOT_COPYING  # the reports are of another day
    assert summary.mirrors_by_state == {MirrorState.ACTIVE: 1}


def test_metrics_have_one_sample_per_link_and_health(link: ClusterLink, make_mirror: MakeMirror, client: Client) -> None:
    make_mirror()
    place = 'cluster="destination-id"'

    text = client.get("/metrics").content.decode()

    for health in Health:
        value = float(health is Health.NOT_COPYING)  # the mirror was never reported
        assert f'clusterlink_link_health{{{place},health="{health.lower()}",link="west-to-east"}} {value}' in text
        assert f'clusterlink_mirror_topics_by_health{{{place},health="{health.lower()}",link="west-to-east"}} {value}' in text


def test_metrics_have_one_sample_per_cluster_and_environment_and_health(
    link: ClusterLink, make_mirror: MakeMirror, client: Client
) -> None:
    make_mirror()  # it was never reported
    Cluster.objects.update(probed_at=BEGAN)
    idle, place = link.destination, link.destination.environment
    for slug, error_code in (("refusing", "TIMEOUT_ERROR"), ("idle", "")):
        place.pk, place.name, place.slug = None, slug, slug
        place.save()
        idle.pk, idle.name, idle.cluster_id, idle.environment = None, slug, f"{slug}-id", place
        idle.probed_at, idle.error_code = BEGAN, error_code
        idle.save()
    place.pk, place.name, place.slug = None, "bare", "bare"  # without clusters
    place.save()

    text = client.get("/metrics").content.decode()

    expected = {
        'cluster_health{cluster="destination-id"': Health.NOT_COPYING,
        'cluster_health{cluster="refusing-id"': Health.DEGRADED,
        'cluster_health{cluster="idle-id"': Health.EMPTY,
        'environment_health{environment="production"': Health.NOT_COPYING,
        'environment_health{environment="refusing"': Health.DEGRADED,
        'environment_health{environment="idle"': Health.EMPTY,
        'environment_health{environment="bare"': Health.EMPTY,
    }
    for sample, current in expected.items():
        for health in Health:
            assert f'clusterlink_{sample},health="{health.lower()}"}} {float(health is current)}' in text


# --- shared results ---------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_queries, "_shared", {})
    monkeypatch.setattr(health_queries, "LONGEST_SHARED_S", 10.0)
    monkeypatch.setattr(health_queries, "SHARED_FACTOR", 0)  # however long this machine takes


def observed(link: ClusterLink, by: Actor) -> Observation:
    link = ClusterLink.objects.select_related("destination__environment").get(pk=link.pk)
    return observe_links([link], by=by, now=NOW, failing=failing_rows(links=[link]))[link.pk]


@pytest.mark.usefixtures("shared")
def test_users_who_may_see_the_whole_link_share_its_state(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, colleague: Actor
) -> None:
    report(make_mirror())
    first = observed(link, owner)

    assert observed(link, colleague) is first
    assert observed(link, ENGINE) is first
    assert first.health.status.health is Health.HEALTHY


@pytest.mark.usefixtures("shared")
def test_change_of_the_link_ends_the_shared_state(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = report(make_mirror())
    assert observed(link, owner).health.status.health is Health.HEALTHY

    MirrorTopic.objects.filter(pk=mirror.pk).update(state=MirrorState.FAILED, error_code="TIMEOUT_ERROR")
    ClusterLink.objects.filter(pk=link.pk).update(sequence=link.sequence + 1)

    assert observed(link, owner).health.status.health is not Health.HEALTHY


@pytest.mark.usefixtures("shared")
def test_silence_of_copy_workers_is_seen_after_two_seconds(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, began = report(make_mirror()), time.monotonic()
    assert observed(link, owner).health.status.health is Health.HEALTHY
    report(mirror, observed_at=ago(60), last_source_seen_at=ago(60))

    monkeypatch.setattr(health_queries, "time", SimpleNamespace(monotonic=lambda: began + 2.5))

    assert observed(link, owner).health.status.health is not Health.HEALTHY


@pytest.mark.usefixtures("shared")
def test_state_that_takes_long_to_read_is_shared_for_at_most_ten_seconds(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_queries, "SHARED_FACTOR", 1_000_000)
    report(make_mirror())
    began, ahead_s = time.monotonic(), [0.0]
    first = observed(link, owner)
    read = time.monotonic()
    monkeypatch.setattr(health_queries, "time", SimpleNamespace(monotonic=lambda: began + ahead_s[0]))

    ahead_s[0] = 9.9
    assert observed(link, owner) is first
    ahead_s[0] = 10.1 + (read - began)
    assert observed(link, owner) is not first


@pytest.mark.usefixtures("shared")
def test_user_who_may_see_some_mirrors_shares_nothing(
    link: ClusterLink, make_mirror: MakeMirror, make_actor: MakeActor, owner: Actor
) -> None:
    report(make_mirror("orders"))
    report(make_mirror("payments"))
    topic = {"cluster": link.destination, "resource_type": "Topic", "resource_name": "orders"}
    reader = make_actor("reader", Role.DEVELOPER_READ, **topic)
    everything = observed(link, owner)

    assert [mirror.name for mirror in observed(link, reader).health.mirrors.values()] == ["orders"]
    assert observed(link, owner) is everything
    assert observed(link, reader).failing == ()
