"""Errors of mirrors that have ended are kept for charts, with few statements and a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.actors import Actor
from console.history.actions import forget_old
from console.mirrors.operation_actions import operate, operate_many
from console.models import ClusterLink, EndedError, MirrorTopic, StateTransitionError
from console.models.mirrors import DELETION_REFUSED, RECORDS_DIFFER, TOMBSTONES_MISSED
from console.reconciling import transition_errors
from console.verification import actions as verification_actions
from linkengine.domain.states import MirrorEvent
from tests.console.conftest import NOW, MakeMirror

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(minutes=10)


def add_error(mirror: MirrorTopic, code: str = "TIMEOUT_ERROR", *, at: datetime = NOW) -> None:
    transition_errors.note(mirror=mirror, code=code, message="No broker responds.", now=at)


def ended() -> list[tuple[str, str, datetime, datetime]]:
    return list(EndedError.objects.order_by("mirror__name", "since").values_list("mirror__name", "code", "since", "until"))


def _replace(mirror: MirrorTopic, _by: Actor) -> None:
    transition_errors.replace(mirror=mirror, errors={"WAITING_FOR_LAG": "behind"}, now=LATER)


def _pause(mirror: MirrorTopic, by: Actor) -> None:
    operate(mirror=mirror, operation=MirrorEvent.PAUSE, by=by, now=LATER)


def _end_difference(mirror: MirrorTopic, _by: Actor) -> None:
    verification_actions.end_alarm(mirror=mirror, ended=(), now=LATER, why={"reason": "test"})


def _create_topic_anew(mirror: MirrorTopic, _by: Actor) -> None:
    verification_actions.keep_ledger(mirror=mirror, source_topic_id="new", mirror_topic_id="new", now=LATER)


def _end_refusal(mirror: MirrorTopic, _by: Actor) -> None:
    transition_errors.note_refusals({mirror: ()}, now=LATER)


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("TIMEOUT_ERROR", _replace),
        ("TIMEOUT_ERROR", _pause),
        (DELETION_REFUSED, _pause),
        (RECORDS_DIFFER, _end_difference),
        (TOMBSTONES_MISSED, _create_topic_anew),
        ("CONFIGS_REFUSED", _end_refusal),
    ],
)
def test_error_that_ends_is_kept_with_its_begin_and_end(
    mirror: MirrorTopic, owner: Actor, sent: Any, code: str, end: Callable[[MirrorTopic, Actor], None]
) -> None:
    add_error(mirror, code)

    end(mirror, owner)

    assert not StateTransitionError.objects.filter(code=code).exists()
    assert ended() == [("orders", code, NOW, LATER)]
    assert EndedError.objects.get().message == "No broker responds."


def test_error_that_is_found_again_has_not_ended(mirror: MirrorTopic) -> None:
    add_error(mirror)

    transition_errors.replace(mirror=mirror, errors={"TIMEOUT_ERROR": "Still none."}, now=LATER)

    assert ended() == []


@pytest.mark.parametrize("count", [50, 400])
def test_errors_of_any_number_of_mirrors_end_in_few_statements(link: ClusterLink, count: int) -> None:
    common = {"link": link, "state": "ACTIVE", "state_since": NOW, "created_at": NOW}
    mirrors = MirrorTopic.objects.bulk_create(MirrorTopic(name=f"t{n}", source_topic=f"t{n}", **common) for n in range(count))
    rows = [StateTransitionError(mirror=row, code="TIMEOUT_ERROR", message="", since=NOW, last_seen_at=NOW) for row in mirrors]
    StateTransitionError.objects.bulk_create(rows)

    with CaptureQueriesContext(connection) as queries:
        transition_errors.clear(mirrors=mirrors, now=LATER)

    batches = len([query for query in queries if "INSERT" in query["sql"]])
    assert len(queries) - batches <= 4
    assert batches <= 1 + count * 5 // 999  # SQLite's limit of parameters, another database has a single batch
    assert EndedError.objects.count() == count
    with CaptureQueriesContext(connection) as queries:
        assert not transition_errors.clear(mirrors=mirrors, now=LATER)
    assert len(queries) == 1


def test_bulk_failover_keeps_the_errors_that_it_clears(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Any
) -> None:
    mirrors = [make_mirror(f"topic-{number}") for number in range(30)]
    for mirror in mirrors:
        add_error(mirror)

    operate_many(link=link, pattern=".*", operation=MirrorEvent.FAILOVER, by=owner, now=LATER)

    assert not StateTransitionError.objects.exists()
    assert EndedError.objects.filter(until=LATER).count() == len(mirrors)


def test_error_that_returns_at_once_extends_its_row(mirror: MirrorTopic, make_mirror: MakeMirror) -> None:
    other = make_mirror("bills")
    for seconds in (0, 60, 120, 180):
        add_error(mirror, at=NOW + timedelta(seconds=seconds))
        transition_errors.clear(mirrors=[mirror], now=NOW + timedelta(seconds=seconds + 5))
    add_error(other, at=NOW)
    transition_errors.clear(mirrors=[other], now=NOW + timedelta(seconds=190))
    add_error(mirror, "AUTHORIZATION_ERROR", at=NOW)
    transition_errors.clear(mirrors=[mirror], now=NOW + timedelta(seconds=190))

    assert ended() == [
        ("bills", "TIMEOUT_ERROR", NOW, NOW + timedelta(seconds=190)),
        ("orders", "TIMEOUT_ERROR", NOW, NOW + timedelta(seconds=185)),
        ("orders", "AUTHORIZATION_ERROR", NOW, NOW + timedelta(seconds=190)),
    ]


def test_error_that_returns_later_gets_a_row_of_its_own(mirror: MirrorTopic) -> None:
    for minutes in (0, 5):
        add_error(mirror, at=NOW + timedelta(minutes=minutes))
        transition_errors.clear(mirrors=[mirror], now=NOW + timedelta(minutes=minutes + 1))

    assert [since for _, _, since, _ in ended()] == [NOW, NOW + timedelta(minutes=5)]


def test_ended_errors_are_kept_for_31_days(mirror: MirrorTopic) -> None:
    for days in (32, 30):
        add_error(mirror, at=NOW - timedelta(days=days, minutes=1))
        transition_errors.clear(mirrors=[mirror], now=NOW - timedelta(days=days))

    forget_old(now=NOW)

    assert [until for *_, until in ended()] == [NOW - timedelta(days=30)]
