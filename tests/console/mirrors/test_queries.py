"""Mirrors with their figures; unknown is None."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.actors import ENGINE, Actor
from console.errors import NotFoundError
from console.http.metrics import prometheus_text
from console.links import queries as link_queries
from console.links.queries import list_links
from console.mirrors import operation_queries
from console.mirrors.operation_queries import preview
from console.mirrors.queries import find_by_topic, get_mirror, list_mirrors, rest_status, shown_state
from console.models import ClusterLink, MirrorPartition, MirrorTopic, SourceTopic
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeMirror
from tests.console.observed import link_figures

S = MirrorState


def test_a_mirror_is_found_by_its_names(mirror: MirrorTopic, colleague: Actor, stranger: Actor) -> None:
    names: dict[str, Any] = {"cluster_id": "destination-id", "link_name": "west-to-east", "mirror_name": "orders"}

    assert get_mirror(**names, by=colleague) == mirror
    for changes in ({"by": stranger}, {"mirror_name": "x"}, {"link_name": "x"}, {"cluster_id": "x"}):
        with pytest.raises(NotFoundError):
            get_mirror(**{**names, "by": colleague, **changes})


def test_a_topic_leads_to_its_mirror(mirror: MirrorTopic, colleague: Actor) -> None:
    assert find_by_topic(cluster_id="destination-id", topic="orders", by=colleague) == mirror
    assert find_by_topic(cluster_id="destination-id", topic="ordinary", by=colleague) is None


@pytest.mark.parametrize("state", list(S))
def test_every_state_has_a_word_of_rest(state: S) -> None:
    mirror = MirrorTopic(state=state)
    shown = {S.PENDING_SETUP: "ACTIVE", S.PENDING_RESTORE_MIRROR: "PENDING_RESTORE"}

    assert rest_status(mirror) == shown.get(state, state.value)
    assert shown_state(mirror) == (S.ACTIVE if state is S.PENDING_SETUP else state)


def test_figures_are_known_when_every_partition_is(mirror: MirrorTopic, link: ClusterLink, owner: Actor) -> None:
    now = timezone.now()
    MirrorPartition.objects.update(observed_at=now, caught_up_at=now, bytes_per_s=5, records_per_s=2)
    MirrorPartition.objects.filter(partition=1).update(
        source_end=17, last_high_watermark=17, caught_up_at=now - timedelta(seconds=3)
    )

    (row,) = list_mirrors(link=link, by=owner)

    assert (row.max_lag, row.total_lag, row.bytes_per_s, row.records_per_s, row.errors) == (7, 7, 10, 4, 0)
    assert row.lag_ms is not None
    assert 3000 <= row.lag_ms < 10_000


def test_one_unknown_partition_makes_the_lag_unknown(mirror: MirrorTopic, link: ClusterLink, owner: Actor) -> None:
    MirrorPartition.objects.filter(partition=0).update(mirror_end=None)

    (row,) = list_mirrors(link=link, by=owner)

    assert (row.max_lag, row.total_lag, row.lag_ms, row.bytes_per_s) == (None, None, None, None)


def test_a_report_that_is_old_makes_the_lag_grow(mirror: MirrorTopic, link: ClusterLink, owner: Actor) -> None:
    old = timezone.now() - timedelta(minutes=1)
    MirrorPartition.objects.update(observed_at=old, caught_up_at=old)

    (row,) = list_mirrors(link=link, by=owner)

    assert row.max_lag == 0
    assert row.lag_ms is not None
    assert row.lag_ms >= 60_000


@pytest.mark.parametrize("state", [S.PAUSED, S.FAILED, S.LINK_FAILED, S.ACTIVE])
def test_a_lag_without_recent_measurement_is_unknown_even_without_an_error_report(
    make_mirror: MakeMirror, link: ClusterLink, owner: Actor, state: S
) -> None:
    old = timezone.now() - timedelta(minutes=10)
    make_mirror(state=state).partitions.update(observed_at=old, last_source_seen_at=old, caught_up_at=old)

    (row,) = list_mirrors(link=link, by=owner)

    assert (row.max_lag, row.total_lag) == (None, None)
    assert row.lag_ms is not None
    assert row.lag_ms >= 600_000


def test_observations_ahead_of_now_are_unknown_everywhere(make_mirror: MakeMirror, link: ClusterLink, owner: Actor) -> None:
    ahead = timezone.now() + timedelta(hours=1)  # the clock was set back, and no worker has reported it yet
    make_mirror().partitions.update(observed_at=ahead, last_source_seen_at=ahead, caught_up_at=ahead)

    (row,), (listed,), page = list_mirrors(link=link, by=owner), list_links(by=owner), link_figures(link=link, by=ENGINE)

    assert (row.max_lag, row.total_lag, row.lag_ms) == (None, None, None)
    assert (listed.max_lag, listed.oldest_lag_ms) == (page.max_lag, page.oldest_lag_ms) == (None, None)
    assert listed.unknown_lags == page.unknown_lags > 0
    assert "clusterlink_max_lag_seconds{" not in prometheus_text()


def test_lists_are_filtered_and_ordered(make_mirror: MakeMirror, link: ClusterLink, owner: Actor) -> None:
    for name, state in [("a", S.ACTIVE), ("b", S.FAILED), ("c", S.PENDING_SETUP)]:
        make_mirror(name, state)
    MirrorPartition.objects.filter(mirror__name="a").update(source_end=99)

    def names(**filters: Any) -> list[str]:
        return [summary.mirror.name for summary in list_mirrors(link=link, by=owner, **filters)]

    assert names() == ["b", "a", "c"]
    assert names(status="ACTIVE") == ["a", "c"]
    assert names(search="B") == ["b"]
    assert names(order="-lag")[0] == "a"
    assert names(order="-name") == ["c", "b", "a"]


def test_a_thousand_rows_cost_as_many_queries_as_one(
    make_mirror: MakeMirror, link: ClusterLink, owner: Actor, django_assert_num_queries: Any
) -> None:
    make_mirror("first")
    assert owner.bindings
    with django_assert_num_queries(4):  # also the configs of the link
        rows = list_mirrors(link=link, by=owner)
    for number in range(30):
        make_mirror(f"m{number}", partitions=3)

    with django_assert_num_queries(3):
        rows = list_mirrors(link=link, by=owner)
        choices = [operation_queries.allowed(row.mirror, owner) for row in rows]

    assert len(choices) == 31


def test_buttons_carry_the_reason_why_not(mirror: MirrorTopic, owner: Actor, colleague: Actor) -> None:
    mine = {each.event: each for each in operation_queries.allowed(mirror, owner)}
    others = {each.event: each for each in operation_queries.allowed(mirror, colleague)}

    assert mine[MirrorEvent.PAUSE].allowed
    assert not mine[MirrorEvent.RESUME].allowed
    assert "Cannot resume" in mine[MirrorEvent.RESUME].reason
    assert not any(each.allowed for each in others.values())
    assert "Operator" in others[MirrorEvent.PAUSE].reason


def test_source_topics_say_why_they_cannot_be_mirrored(make_mirror: MakeMirror, link: ClusterLink, owner: Actor) -> None:
    seen = {"partitions": 1, "seen_at": NOW}
    link.source_topics.bulk_create(
        SourceTopic(link=link, name=name, internal=name.startswith("__"), **seen)
        for name in ("free", "orders", "__consumer_offsets", "taken")
    )
    SourceTopic.objects.create(cluster=link.destination, name="taken", **seen)
    make_mirror("orders")
    assert link_queries.source_topics_for(link=link, by=owner) == []
    link.topics_at = NOW

    choices = {topic.name: topic for topic in link_queries.source_topics_for(link=link, by=owner)}

    assert [name for name, topic in choices.items() if topic.available] == ["free"]
    assert choices["orders"].reason == "Already mirrored"
    assert "Internal" in choices["__consumer_offsets"].reason
    assert "already has a topic" in choices["taken"].reason
    assert [topic.name for topic in link_queries.source_topics_for(link=link, by=owner, search="fre")] == ["free"]


def test_a_mirror_that_stands_before_an_open_transaction_has_no_lag_and_yet_an_age(
    mirror: MirrorTopic, link: ClusterLink, owner: Actor
) -> None:
    now = timezone.now()
    since = now - timedelta(minutes=15)
    MirrorPartition.objects.update(observed_at=now, last_source_seen_at=now, caught_up_at=now)
    MirrorPartition.objects.filter(partition=1).update(last_high_watermark=49_010, caught_up_at=since)

    (row,) = list_mirrors(link=link, by=owner)
    (summary,) = list_links(by=owner)
    metrics = prometheus_text()

    assert (row.max_lag, row.missing) == (0, 49_000)
    assert (summary.max_lag, link_figures(link=link, by=ENGINE).max_lag) == (0, 0)
    for age in (row.lag_ms, summary.oldest_lag_ms, link_figures(link=link, by=ENGINE).oldest_lag_ms):
        assert 15 * 60_000 <= (age or 0) < 16 * 60_000
    assert 'clusterlink_held_back_offsets{cluster="destination-id",link="west-to-east"} 49000.0' in metrics
    assert 'clusterlink_max_lag_messages{cluster="destination-id",link="west-to-east"} 0.0' in metrics
    assert 'clusterlink_max_lag_seconds{cluster="destination-id",link="west-to-east"} 9' in metrics
    assert preview(mirror, MirrorEvent.FAILOVER).records_at_risk == 49_000
    assert preview(mirror, MirrorEvent.PROMOTE).records_to_copy == 0


def test_missing_records_are_unknown_if_the_high_watermark_is_unknown(
    mirror: MirrorTopic, link: ClusterLink, owner: Actor
) -> None:
    now = timezone.now()
    MirrorPartition.objects.update(observed_at=now, last_source_seen_at=now, last_high_watermark=None, caught_up_at=None)

    (row,) = list_mirrors(link=link, by=owner)
    (summary,) = list_links(by=owner)

    assert (row.max_lag, row.missing, row.lag_ms) == (0, None, None)
    assert summary.oldest_lag_ms is link_figures(link=link, by=ENGINE).oldest_lag_ms is None
    assert preview(mirror, MirrorEvent.FAILOVER).records_at_risk is None
    assert "clusterlink_held_back_offsets{" not in prometheus_text()
