"""Mirrors with their figures; unknown is None."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.actors import ENGINE, SYSTEM, Actor
from console.api.kafka_schemas import mirror_status
from console.errors import NotFoundError
from console.http.metrics import prometheus_text
from console.links import topic_queries
from console.links.queries import list_links
from console.mirrors import operation_queries
from console.mirrors.operation_queries import preview
from console.mirrors.queries import find_by_topic, get_mirror, list_mirrors, mirror_page
from console.models import ClusterLink, MirrorPartition, MirrorTopic, SourceTopic, StateTransitionError
from linkengine.domain.states import LinkState, MirrorEvent, MirrorState
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
    shown = {S.PENDING_SETUP: "ACTIVE", S.PENDING_RESTORE_MIRROR: "PENDING_RESTORE"}

    assert mirror_status(state, link_state=LinkState.ACTIVE) == shown.get(state, state.value)


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


def test_mirrors_that_need_a_person_come_first(make_mirror: MakeMirror, link: ClusterLink, owner: Actor) -> None:
    for name, state in [("a", S.ACTIVE), ("b", S.FAILED), ("c", S.PENDING_SETUP)]:
        make_mirror(name, state)

    assert [summary.mirror.name for summary in list_mirrors(link=link, by=owner)] == ["b", "a", "c"]


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
    assert topic_queries.source_topics_for(link=link, by=owner) == []
    link.topics_at = NOW

    choices = {topic.name: topic for topic in topic_queries.source_topics_for(link=link, by=owner)}

    assert [name for name, topic in choices.items() if topic.available] == ["free"]
    assert choices["orders"].reason == "Already mirrored"
    assert "Internal" in choices["__consumer_offsets"].reason
    assert "already has a topic" in choices["taken"].reason
    assert [topic.name for topic in topic_queries.source_topics_for(link=link, by=owner, search="fre")] == ["free"]


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


# --- pages of a list, and figures of a link ---------------------------------------------------------------------------


@pytest.fixture
def five(make_mirror: MakeMirror) -> dict[str, MirrorTopic]:
    """Return five mirrors with different lags and four different states."""
    states = (
        ("ants", MirrorState.ACTIVE, 7),
        ("bees", MirrorState.FAILED, 900),
        ("cats", MirrorState.STOPPED, 0),
        ("dogs", MirrorState.ACTIVE, 40),
        ("eels", MirrorState.SOURCE_UNAVAILABLE, 3),
    )
    found = {}
    for number, (name, state, lag) in enumerate(states):
        mirror = found[name] = make_mirror(name, state)
        mirror.partitions.update(
            source_end=10 + lag,
            last_high_watermark=10 + lag,
            caught_up_at=timezone.now() - timedelta(minutes=number),
            bytes_per_s=float(lag),
            records_per_s=1.0,
            observed_at=NOW,
        )
    return found


def names(**options: object) -> list[str]:
    return [row.mirror.name for row in mirror_page(by=SYSTEM, **options).rows]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("", ["bees", "eels", "ants", "cats", "dogs"]),
        ("name", ["ants", "bees", "cats", "dogs", "eels"]),
        ("-name", ["eels", "dogs", "cats", "bees", "ants"]),
        ("lag", ["cats", "eels", "ants", "dogs", "bees"]),
        ("-lag", ["bees", "dogs", "ants", "eels", "cats"]),
        ("-age", ["eels", "dogs", "cats", "bees", "ants"]),
        ("age", ["ants", "bees", "cats", "dogs", "eels"]),
        ("-rate", ["bees", "dogs", "ants", "eels", "cats"]),
        ("nonsense; drop table", ["bees", "eels", "ants", "cats", "dogs"]),
    ],
)
def test_list_is_sorted_by_the_given_order(five: dict[str, MirrorTopic], order: str, expected: list[str]) -> None:
    MirrorPartition.objects.update(observed_at=timezone.now())  # an old rate is unknown

    assert names(order=order) == expected


def test_unknown_lag_is_sorted_last_in_descending_order(five: dict[str, MirrorTopic]) -> None:
    five["bees"].partitions.update(source_end=None)

    assert names(order="-lag")[-1] == "bees"
    assert names(order="lag")[0] == "bees"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"search": "EE"}, ["bees", "eels"]),
        ({"state": "ACTIVE"}, ["ants", "dogs"]),
        ({"names": ["cats", "unknown"]}, ["cats"]),
        ({"names": []}, []),
    ],
)
def test_list_is_filtered(five: dict[str, MirrorTopic], options: dict[str, object], expected: list[str]) -> None:
    assert names(order="name", **options) == expected


def test_page_has_the_total_number_of_mirrors(five: dict[str, MirrorTopic]) -> None:
    page = mirror_page(by=SYSTEM, order="name", start=2, size=2)

    assert [row.mirror.name for row in page.rows] == ["cats", "dogs"]
    assert (page.total, page.start) == (5, 2)


def test_start_beyond_the_end_returns_the_last_page(five: dict[str, MirrorTopic]) -> None:
    page = mirror_page(by=SYSTEM, order="name", start=100, size=2)

    assert [row.mirror.name for row in page.rows] == ["eels"]
    assert (page.total, page.start) == (5, 4)


def test_errors_of_a_mirror_are_counted(five: dict[str, MirrorTopic]) -> None:
    for code in ("AUTHENTICATION_ERROR", "TIMEOUT_ERROR"):
        StateTransitionError.objects.create(mirror=five["ants"], code=code, message="x", since=NOW, last_seen_at=NOW)
    MirrorTopic.objects.filter(name="ants").update(error_code="INTERNAL_ERROR")

    errors = {row.mirror.name: row.errors for row in mirror_page(by=SYSTEM, order="name").rows}

    assert errors == {"ants": 3, "bees": 0, "cats": 0, "dogs": 0, "eels": 0}


def test_actor_without_roles_sees_no_mirrors(five: dict[str, MirrorTopic], stranger: Actor) -> None:
    assert mirror_page(by=stranger).total == 0


def test_number_of_queries_does_not_grow_with_the_list(
    five: dict[str, MirrorTopic], make_mirror: MakeMirror, link: ClusterLink
) -> None:
    for number in range(30):
        make_mirror(f"more-{number}")

    with CaptureQueriesContext(connection) as queries:
        mirror_page(by=SYSTEM, link=link, order="-lag", size=10)
        link_figures(link=link, by=ENGINE)

    assert len(queries) == 5


def test_link_figures_exclude_stopped_mirrors_from_lag_and_rates(five: dict[str, MirrorTopic], link: ClusterLink) -> None:
    MirrorPartition.objects.update(observed_at=timezone.now())
    figures = link_figures(link=link, by=ENGINE)

    assert figures.max_lag == 900
    assert figures.bytes_per_s == 2 * (7 + 900 + 40 + 3)
    assert figures.records_per_s == 8
    assert (figures.mirrors, figures.partitions) == (5, 10)
    assert figures.oldest_lag_ms is not None
    assert figures.oldest_lag_ms >= 4 * 60_000


def test_mirror_with_two_errors_is_counted_once(five: dict[str, MirrorTopic], link: ClusterLink) -> None:
    for code in ("AUTHENTICATION_ERROR", "TIMEOUT_ERROR"):
        StateTransitionError.objects.create(mirror=five["dogs"], code=code, message="x", since=NOW, last_seen_at=NOW)

    figures = link_figures(link=link, by=ENGINE)

    assert (figures.mirrors, figures.partitions) == (5, 10)


def test_figures_without_measurements_are_unknown_instead_of_0(make_mirror: MakeMirror, link: ClusterLink) -> None:
    make_mirror("quiet")
    MirrorPartition.objects.update(source_end=None, mirror_end=None)

    figures = link_figures(link=link, by=ENGINE)

    assert figures.max_lag is None
    assert figures.oldest_lag_ms is None
    assert figures.bytes_per_s is None


def test_partition_with_unknown_lag_is_counted_and_not_treated_as_caught_up(link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(partitions=2)
    mirror.partitions.filter(partition=1).update(source_end=None, caught_up_at=timezone.now() - timedelta(minutes=3))

    figures = link_figures(link=link, by=ENGINE)

    assert (figures.max_lag, figures.unknown_lags) == (0, 1)
    assert figures.oldest_lag_ms is not None
    assert figures.oldest_lag_ms >= 3 * 60_000


def test_active_mirror_with_an_error_is_sorted_before_those_without(five: dict[str, MirrorTopic]) -> None:
    StateTransitionError.objects.create(mirror=five["dogs"], code="RECORDS_DIFFER", message="x", since=NOW, last_seen_at=NOW)

    assert [row.mirror.name for row in mirror_page(by=SYSTEM).rows] == ["bees", "eels", "dogs", "ants", "cats"]
