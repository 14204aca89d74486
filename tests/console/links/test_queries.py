"""Queries for links with totals; the number of SQL queries does not depend on the number of rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.actors import ENGINE, Actor
from console.errors import NotFoundError
from console.http.metrics import prometheus_text
from console.links.queries import effective_configs, get_link, list_links, load_links
from console.links.task_presenters import is_mirrorable
from console.links.topic_queries import check_source_topics, checked_page, with_standing
from console.mirrors.queries import summarize
from console.models import (
    AutoCreateFailure,
    Cluster,
    ClusterLink,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    Namespace,
    SourceTopic,
    StateTransitionError,
)
from linkengine.domain.mirrorability import MirrorabilityStatus
from linkengine.domain.names import FilterType, NameFilter, PatternType, filters_to_json
from linkengine.domain.states import LinkState, MirrorState
from tests.console.conftest import NOW, MakeMirror
from tests.console.observed import link_figures


def copy_of(link: ClusterLink, **changes: Any) -> ClusterLink:
    values = {
        "destination": link.destination,
        "source_cluster_id": "x",
        "properties": {},
        "state_since": NOW,
        "created_at": NOW,
        **changes,
    }
    return ClusterLink.objects.create(**values)


def test_get_link_finds_a_link_by_cluster_and_name(link: ClusterLink, colleague: Actor, stranger: Actor) -> None:
    assert get_link(cluster_id="destination-id", name=link.name, by=colleague) == link
    for cluster_id, name, by in [
        ("destination-id", "x", colleague),
        ("x", link.name, colleague),
        ("destination-id", link.name, stranger),
    ]:
        with pytest.raises(NotFoundError, match="does not exist"):
            get_link(cluster_id=cluster_id, name=name, by=by)


def test_lag_and_rate_totals_exclude_stopped_mirrors(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    behind = make_mirror("behind")
    make_mirror("done", MirrorState.STOPPED)
    since = timezone.now() - timedelta(seconds=30)
    MirrorPartition.objects.filter(mirror=behind, partition=0).update(
        source_end=25, last_high_watermark=25, caught_up_at=since, bytes_per_s=100
    )
    MirrorPartition.objects.filter(mirror__name="done").update(source_end=1000, bytes_per_s=7)
    StateTransitionError.objects.create(mirror=behind, code="X", message="", since=NOW, last_seen_at=NOW)

    (summary,) = list_links(by=owner)

    assert summary.mirrors_by_state == {MirrorState.ACTIVE: 1, MirrorState.STOPPED: 1}
    assert (summary.mirrors, summary.max_lag, summary.bytes_per_s, summary.errors) == (2, 15, 100, 1)
    assert summary.oldest_lag_ms is not None
    assert 30_000 <= summary.oldest_lag_ms < 60_000


def test_totals_of_unmeasured_partitions_are_unknown(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    make_mirror()
    MirrorPartition.objects.update(source_end=None)

    (summary,) = list_links(by=owner)

    assert (summary.max_lag, summary.oldest_lag_ms, summary.bytes_per_s) == (None, None, None)


def test_rate_of_an_hours_old_report_is_unknown(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror()
    mirror.partitions.update(bytes_per_s=5e6, records_per_s=5.0, observed_at=timezone.now())
    assert [summary.bytes_per_s for summary in list_links(by=owner)] == [1e7]
    assert link_figures(link=link, by=ENGINE).records_per_s == 10

    mirror.partitions.update(observed_at=timezone.now() - timedelta(hours=8))

    assert [summary.bytes_per_s for summary in list_links(by=owner)] == [None]
    assert link_figures(link=link, by=ENGINE).records_per_s is None
    assert summarize(mirror, now=timezone.now()).bytes_per_s is None
    assert "clusterlink_bytes_per_second{" not in prometheus_text()


def test_lag_is_unknown_when_the_source_was_last_seen_long_ago(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor
) -> None:
    old = timezone.now() - timedelta(minutes=10)
    make_mirror(state=MirrorState.PAUSED).partitions.update(last_source_seen_at=old, caught_up_at=old)

    (summary,) = list_links(by=owner)
    figures = link_figures(link=link, by=ENGINE)

    for totals in (summary, figures):
        assert (totals.max_lag, totals.unknown_lags) == (None, 2)
        assert (totals.oldest_lag_ms or 0) >= 600_000


def test_failed_links_are_listed_first(link: ClusterLink, owner: Actor) -> None:
    copy_of(link, name="a-broken", state=LinkState.FAILED)
    copy_of(link, name="z-broken", state=LinkState.FAILED)

    assert [summary.link.name for summary in list_links(by=owner)] == ["a-broken", "z-broken", "west-to-east"]
    assert [found.name for found in load_links(by=owner, state="FAILED", search="Z-")] == ["z-broken"]
    assert list_links(by=owner, cluster_id="source-id") == []


def test_list_of_101_links_takes_as_many_queries_as_of_1(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, django_assert_num_queries: Any
) -> None:
    make_mirror()
    assert owner.bindings
    with django_assert_num_queries(3):
        list_links(by=owner)
    for number in range(100):
        make_mirror(f"m{number}", link=copy_of(link, name=f"l{number}"))

    with django_assert_num_queries(3):
        assert len(list_links(by=owner)) == 101


@pytest.mark.parametrize("others", [0, 1])
def test_mirror_without_partitions_counts_as_unknown_lag(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, others: int
) -> None:
    for number in range(others):
        level = make_mirror(name=f"level-{number}").partitions
        level.update(source_end=5, mirror_end=5, last_high_watermark=5, caught_up_at=timezone.now())
    make_mirror(name="waits", state=MirrorState.PENDING_SETUP, partitions=0)
    make_mirror(name="over", state=MirrorState.STOPPED, partitions=0)

    (listed,), figures = list_links(by=owner), link_figures(link=link, by=ENGINE)
    metrics = prometheus_text()

    assert (listed.unknown_lags, figures.unknown_lags) == (1, 1)
    assert (listed.oldest_lag_ms, figures.oldest_lag_ms, listed.lag_bytes) == (None, None, None)
    assert 'clusterlink_unknown_lag_partitions{cluster="destination-id",link="west-to-east"} 1.0' in metrics
    assert "clusterlink_max_lag_messages{" not in metrics  # 0 would mean that the mirror without partitions has no lag


def test_effective_configs_show_values_in_effect_and_hide_secrets(link: ClusterLink, django_assert_num_queries: Any) -> None:
    LinkConfig.objects.create(link=link, name="acl.sync.ms", value="6000")

    with django_assert_num_queries(1):
        configs = {config.name: config for config in effective_configs(link=link)}

    assert (configs["acl.sync.ms"].value, configs["acl.sync.ms"].is_default) == ("6000", False)
    assert (configs["topic.config.sync.ms"].value, configs["topic.config.sync.ms"].is_default) == ("5000", True)
    assert (configs["sasl.jaas.config"].value, configs["sasl.jaas.config"].is_default) == (None, False)
    assert configs["bootstrap.servers"].value == "source.test:9092"
    assert configs["request.timeout.ms"].is_read_only


def test_bootstrap_servers_of_cluster_credentials_are_shown(link: ClusterLink) -> None:
    link.properties, link.uses_cluster_credentials = {}, True
    values = {config.name: config.value for config in effective_configs(link=link)}
    assert values["bootstrap.servers"] is None  # the reader's sight of the source is not loaded

    link.sees_source = True  # type: ignore[attr-defined]
    configs = {config.name: config for config in effective_configs(link=link)}

    assert (configs["bootstrap.servers"].value, configs["bootstrap.servers"].is_default) == ("source.test:9092", True)
    assert configs["sasl.jaas.config"].value is None


def test_search_ignores_the_name_of_a_source_that_the_reader_may_not_see(
    link: ClusterLink, owner: Actor, colleague: Actor
) -> None:
    assert [found.known_source for found in load_links(by=owner, search="Sourc")] == [link.source]
    assert load_links(by=colleague, search="Sourc") == []
    (seen,) = load_links(by=colleague, search="west")
    assert (seen.source, seen.known_source) == (link.source, None)


# --- the status of source topics in SQL and in Python -----------------------------------------------------------------


def list_source_topics(link: ClusterLink) -> None:
    """List topics at the source, at least one for each check, with what the destination and other links have."""
    destination, seen = link.destination, {"partitions": 1, "seen_at": NOW}
    third = Cluster.objects.create(
        environment=destination.environment, name="Third", cluster_id="third-id", bootstrap_servers="third.test:9092",
        properties={}, created_at=NOW,
    )  # fmt: skip
    other = copy_of(link, name="other", source_cluster_id="third-id")
    back = copy_of(link, name="back", destination=link.source, source_cluster_id=destination.cluster_id)
    far = copy_of(link, name="far", destination=third, source_cluster_id=destination.cluster_id)
    round_about = copy_of(link, name="round-about", destination=link.source, source_cluster_id="third-id")
    names = [
        "mirrored", "stopped", "elsewhere", "taken", "free", "Free", "freely", "secret.a", "public", "failed",
        "__internal", "_confluent-x", "_schemas", "_private", "broker-internal", "t.clusterlink-drill-7", "x" * 248,
        "returning", "returned-once", "returning-far", "relayed", "marked", "promoted-here",
    ]  # fmt: skip
    SourceTopic.objects.bulk_create(
        SourceTopic(link=link, name=name, internal=name == "broker-internal", is_mirror=name == "marked", **seen)
        for name in names
    )
    SourceTopic.objects.create(cluster=destination, name=f"{link.prefix}taken", **seen)
    SourceTopic.objects.create(cluster=destination, name=f"{link.prefix}mirrored", **seen)
    SourceTopic.objects.create(cluster=destination, name="FREELY", **seen)
    AutoCreateFailure.objects.create(
        link=link, source_topic="failed", code="TIMEOUT", message="No reply.", since=NOW, tried_at=NOW
    )
    common = {"state_since": NOW, "created_at": NOW}
    for place, name, topic, state in (
        (link, f"{link.prefix}mirrored", "mirrored", MirrorState.PAUSED),
        (link, f"{link.prefix}stopped", "stopped", MirrorState.STOPPED),
        (other, f"{link.prefix}elsewhere", "elsewhere", MirrorState.ACTIVE),
        (other, f"{link.prefix}mirrored", "mirrored", MirrorState.STOPPED),
        (other, f"{link.prefix}promoted-here", "promoted-here", MirrorState.STOPPED),
        (back, "returning", "origin", MirrorState.ACTIVE),
        (back, "returned-once", "origin-2", MirrorState.STOPPED),
        (far, "way", "origin-3", MirrorState.ACTIVE),
        (round_about, "returning-far", "way", MirrorState.ACTIVE),
        (round_about, "relayed", "own-of-third", MirrorState.ACTIVE),
    ):
        MirrorTopic.objects.create(link=place, name=name, source_topic=topic, state=state, **common)


INCLUDE, EXCLUDE = FilterType.INCLUDE, FilterType.EXCLUDE
PREFIXED = PatternType.PREFIXED
ALL = NameFilter(name="*", filter_type=INCLUDE)


@pytest.mark.parametrize("trouble", ["", "PAUSED"])
@pytest.mark.parametrize("reserved", [(), ("secret.",), ("",), ("east.sec",), ("ea",)])
@pytest.mark.parametrize(
    "filters",
    [
        None,
        (ALL,),
        (NameFilter(name="free", filter_type=INCLUDE), NameFilter(name="re", pattern_type=PREFIXED, filter_type=INCLUDE)),
        (
            ALL,
            NameFilter(name="free", pattern_type=PREFIXED, filter_type=EXCLUDE),
            NameFilter(name="public", filter_type=EXCLUDE),
        ),
        (NameFilter(name="*", filter_type=EXCLUDE), ALL),
    ],
)
@pytest.mark.parametrize("prefix", ["", "east."])
def test_status_in_sql_is_that_of_the_checks(
    link: ClusterLink,
    owner: Actor,
    prefix: str,
    filters: tuple[NameFilter, ...] | None,
    reserved: tuple[str, ...],
    trouble: str,
) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(prefix=prefix, state=trouble or LinkState.ACTIVE)
    link = get_link(cluster_id="destination-id", name=link.name, by=owner)
    list_source_topics(link)
    if filters is not None:
        LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.enable", value="true")
        LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.filters", value=filters_to_json(filters))
    for namespace in reserved:
        place = {"cluster": link.destination, "created_at": NOW, "created_by": "owner"}
        Namespace.objects.create(prefix=namespace, reserved=True, **place)
    checked = {topic.topic: topic for topic in check_source_topics(link=link, by=owner)}
    expected = {name: (topic.standing, is_mirrorable(topic)) for name, topic in checked.items()}

    shown = checked_page(link=link, by=owner, select=lambda rows: rows.order_by("name"), start=0, size=50)
    found = with_standing(link, reserved=reserved).values_list("name", "rank", "mirrorable")

    assert {name: (list(MirrorabilityStatus)[rank], mirrorable) for name, rank, mirrorable in found} == expected
    assert {topic.topic: topic for topic in shown.rows} == checked
    assert (shown.total, shown.mirrorable) == (len(checked), sum(mirrorable for _, mirrorable in expected.values()))
