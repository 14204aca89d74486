"""Pages of the mirror list and the figures of a link."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.actors import ENGINE, SYSTEM, Actor
from console.mirrors.page_queries import mirror_page
from console.models import ClusterLink, MirrorPartition, MirrorTopic, StateTransitionError
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror
from tests.console.observed import link_figures


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
