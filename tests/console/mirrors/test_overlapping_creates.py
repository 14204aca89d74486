"""Concurrent create requests: both pass the first check while the clusters are contacted, and meet when they are stored.

An equal request gets the row of the first; a different request is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from console.actors import SYSTEM, Actor
from console.errors import BadRequestError, ConflictError
from console.links.actions import create_link
from console.mirrors.actions import create_mirror
from console.models import AuditEvent, Cluster, ClusterLink, MirrorTopic
from console.queue import dispatch
from tests.console.concurrently import run_concurrently
from tests.console.conftest import NOW, SOURCE_PROPERTIES, Engine

PAIR = {**SOURCE_PROPERTIES, "link.mode": "BIDIRECTIONAL"}
Call = Callable[..., Any]


@pytest.fixture
def while_waiting(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a function that runs a callback once, while the first request waits for the worker's result."""

    def during(task: str, callback: Call) -> None:
        def call(task_name: str, **values: Any) -> Any:
            response = engine.call(task_name, **values)
            if task_name == task:
                monkeypatch.setattr(dispatch, "call", engine.call)
                callback()
            return response

        monkeypatch.setattr(dispatch, "call", call)

    return during


def make_link(destination: Cluster, by: Actor, **changes: Any) -> ClusterLink:
    values: dict[str, Any] = {"name": "new", "source_cluster_id": "source-id", "configs": SOURCE_PROPERTIES}
    link = create_link(destination=destination, by=by, now=NOW, **{**values, **changes})
    assert isinstance(link, ClusterLink)
    return link


def test_an_equal_link_created_concurrently_is_returned(
    destination: Cluster, owner: Actor, while_waiting: Call, sent: list[Any]
) -> None:
    while_waiting("check_link", lambda: make_link(destination, owner))

    assert make_link(destination, owner) == ClusterLink.objects.get()
    assert AuditEvent.objects.count() == 1


def test_a_different_link_created_concurrently_is_refused_by_name(
    destination: Cluster, owner: Actor, while_waiting: Call, sent: list[Any]
) -> None:
    while_waiting("check_link", lambda: make_link(destination, owner, configs={**SOURCE_PROPERTIES, "acl.sync.ms": "9000"}))

    with pytest.raises(BadRequestError, match=r"Cluster link 'new' already exists\.") as caught:
        make_link(destination, owner)
    assert caught.value.code == "LINK_EXISTS"


@pytest.mark.django_db(transaction=True)
def test_a_cluster_deleted_concurrently_is_reported_as_deleted(
    destination: Cluster, source: Cluster, owner: Actor, while_waiting: Call, sent: list[Any]
) -> None:
    while_waiting("check_link", lambda: Cluster.objects.all().delete())

    with pytest.raises(ConflictError, match="was deleted at the same time"):
        make_link(destination, owner)


def test_the_second_side_of_a_pair_gets_the_id_of_the_first_created_concurrently(
    destination: Cluster, source: Cluster, owner: Actor, while_waiting: Call, engine: Engine, sent: list[Any]
) -> None:
    def create_other_side() -> None:
        engine.responses["check_link"] = {**engine.responses["check_link"], "cluster_id": "destination-id"}
        make_link(source, owner, source_cluster_id="destination-id", configs=there)

    there = {**destination.properties, "link.mode": "BIDIRECTIONAL"}
    while_waiting("check_link", create_other_side)

    made = make_link(destination, owner, configs=PAIR)

    other = ClusterLink.objects.get(destination=source)
    assert made is not None
    assert (made.shown_uuid, other.shown_uuid) == (other.link_uuid, other.link_uuid)


def test_an_equal_mirror_created_concurrently_is_returned(
    link: ClusterLink, owner: Actor, while_waiting: Call, sent: list[Any]
) -> None:
    while_waiting("check_mirror", lambda: create_mirror(link=link, source_topic="orders", by=owner, now=NOW))

    assert create_mirror(link=link, source_topic="orders", by=owner, now=NOW) == MirrorTopic.objects.get()
    assert [name for name, _ in sent] == ["setup_mirror"]


def test_a_mirror_created_concurrently_by_another_user_is_refused(
    link: ClusterLink, owner: Actor, while_waiting: Call, sent: list[Any]
) -> None:
    while_waiting("check_mirror", lambda: create_mirror(link=link, source_topic="orders", by=SYSTEM, now=NOW))

    with pytest.raises(BadRequestError, match="mirror topic of cluster link 'west-to-east'") as caught:
        create_mirror(link=link, source_topic="orders", by=owner, now=NOW)
    assert caught.value.code == "MIRROR_EXISTS_ERROR"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["link", "mirror"])
def test_concurrent_equal_requests_all_get_the_same_row(
    what: str, destination: Cluster, link: ClusterLink, engine: Engine, sent: list[Any]
) -> None:
    keys = []

    def run() -> None:
        row = make_link(destination, SYSTEM) if what == "link" else _mirror(link)
        keys.append(row.pk if row else None)

    run_concurrently(*[run] * 4)

    assert len(keys) == 4
    assert len(set(keys)) == 1


@pytest.mark.django_db(transaction=True)
def test_both_sides_of_a_pair_created_concurrently_get_the_same_id(
    destination: Cluster, source: Cluster, engine: Engine, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both requests look for the other side before either is stored."""
    start = Barrier(2)

    def query_source(link: ClusterLink, **_: object) -> dict[str, str]:
        start.wait(30)
        return {"cluster_id": link.source_cluster_id}

    monkeypatch.setattr("console.links.actions.link_checks.query_source", query_source)

    def run(here: Cluster, there: Cluster) -> None:
        configs = {**there.properties, "link.mode": "BIDIRECTIONAL"}
        make_link(here, SYSTEM, source_cluster_id=there.cluster_id, configs=configs)

    run_concurrently(partial(run, destination, source), partial(run, source, destination))

    first, second = ClusterLink.objects.all()
    assert first.shown_uuid == second.shown_uuid


def _mirror(link: ClusterLink) -> MirrorTopic:
    own = ClusterLink.objects.select_related("destination__environment", "source").get(pk=link.pk)
    return create_mirror(link=own, source_topic="orders", by=SYSTEM, now=NOW)
