"""Two requests that are equal, or belong together, meet while the clusters are asked: who repeats is told the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from console import dispatch
from console.actions import links
from console.actions.links import create_link
from console.actions.mirrors import create_mirror
from console.actors import SYSTEM, Actor
from console.errors import BadRequestError, ConflictError
from console.models import AuditEvent, Cluster, ClusterLink, MirrorTopic
from tests.console.atonce import at_once
from tests.console.conftest import NOW, SOURCE_PROPERTIES, Engine

PAIR = {**SOURCE_PROPERTIES, "link.mode": "BIDIRECTIONAL"}
Call = Callable[..., Any]


@pytest.fixture
def meanwhile(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Have something done once, while the first request waits for the worker's answer."""

    def during(task: str, happens: Call) -> None:
        def call(task_name: str, **values: Any) -> Any:
            answer = engine.call(task_name, **values)
            if task_name == task:
                monkeypatch.setattr(dispatch, "call", engine.call)
                happens()
            return answer

        monkeypatch.setattr(dispatch, "call", call)

    return during


def make_link(destination: Cluster, by: Actor, **changes: Any) -> ClusterLink | None:
    values: dict[str, Any] = {"name": "new", "source_cluster_id": "source-id", "configs": SOURCE_PROPERTIES}
    return create_link(destination=destination, by=by, now=NOW, **{**values, **changes})


def test_an_equal_link_that_was_made_meanwhile_is_the_answer(
    destination: Cluster, owner: Actor, meanwhile: Call, sent: list[Any]
) -> None:
    meanwhile("check_link", lambda: make_link(destination, owner))

    assert make_link(destination, owner) == ClusterLink.objects.get()
    assert AuditEvent.objects.count() == 1


def test_another_link_of_the_name_that_was_made_meanwhile_is_in_the_way(
    destination: Cluster, owner: Actor, meanwhile: Call, sent: list[Any]
) -> None:
    meanwhile("check_link", lambda: make_link(destination, owner, configs={**SOURCE_PROPERTIES, "acl.sync.ms": "9000"}))

    with pytest.raises(BadRequestError, match=r"Cluster link 'new' already exists\.") as caught:
        make_link(destination, owner)
    assert caught.value.code == "LINK_EXISTS"


@pytest.mark.django_db(transaction=True)
def test_a_cluster_that_was_deleted_meanwhile_is_no_link_that_exists(
    destination: Cluster, source: Cluster, owner: Actor, meanwhile: Call, sent: list[Any]
) -> None:
    meanwhile("check_link", lambda: Cluster.objects.all().delete())

    with pytest.raises(ConflictError, match="was deleted at the same moment"):
        make_link(destination, owner)


def test_the_second_half_of_a_pair_takes_the_id_of_one_that_was_made_meanwhile(
    destination: Cluster, source: Cluster, owner: Actor, meanwhile: Call, engine: Engine, sent: list[Any]
) -> None:
    def other_half() -> None:
        engine.answers["check_link"] = {**engine.answers["check_link"], "cluster_id": "destination-id"}
        make_link(source, owner, source_cluster_id="destination-id", configs=there)

    there = {**destination.properties, "link.mode": "BIDIRECTIONAL"}
    meanwhile("check_link", other_half)

    made = make_link(destination, owner, configs=PAIR)

    other = ClusterLink.objects.get(destination=source)
    assert made is not None
    assert (made.shown_uuid, other.shown_uuid) == (other.link_uuid, other.link_uuid)


def test_an_equal_mirror_that_was_made_meanwhile_is_the_answer(
    link: ClusterLink, owner: Actor, meanwhile: Call, sent: list[Any]
) -> None:
    meanwhile("check_mirror", lambda: create_mirror(link=link, source_topic="orders", by=owner, now=NOW))

    assert create_mirror(link=link, source_topic="orders", by=owner, now=NOW) == MirrorTopic.objects.get()
    assert [name for name, _ in sent] == ["setup_mirror"]


def test_a_mirror_that_somebody_else_made_meanwhile_is_in_the_way(
    link: ClusterLink, owner: Actor, meanwhile: Call, sent: list[Any]
) -> None:
    meanwhile("check_mirror", lambda: create_mirror(link=link, source_topic="orders", by=SYSTEM, now=NOW))

    with pytest.raises(BadRequestError, match="mirror topic of cluster link 'west-to-east'") as caught:
        create_mirror(link=link, source_topic="orders", by=owner, now=NOW)
    assert caught.value.code == "MIRROR_EXISTS_ERROR"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["link", "mirror"])
def test_of_many_equal_requests_at_once_each_is_told_of_success(
    what: str, destination: Cluster, link: ClusterLink, engine: Engine, sent: list[Any]
) -> None:
    answers = []

    def run() -> None:
        row = make_link(destination, SYSTEM) if what == "link" else _mirror(link)
        answers.append(row.pk if row else None)

    at_once(*[run] * 4)

    assert len(answers) == 4
    assert len(set(answers)) == 1


@pytest.mark.django_db(transaction=True)
def test_two_halves_made_at_once_have_one_id(
    destination: Cluster, source: Cluster, engine: Engine, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked for the other one before either is stored."""
    start = Barrier(2)

    def ask_source(link: ClusterLink, **_: object) -> dict[str, str]:
        start.wait(30)
        return {"cluster_id": link.source_cluster_id}

    monkeypatch.setattr(links.linkchecks, "ask_source", ask_source)

    def run(here: Cluster, there: Cluster) -> None:
        configs = {**there.properties, "link.mode": "BIDIRECTIONAL"}
        make_link(here, SYSTEM, source_cluster_id=there.cluster_id, configs=configs)

    at_once(partial(run, destination, source), partial(run, source, destination))

    first, second = ClusterLink.objects.all()
    assert first.shown_uuid == second.shown_uuid


def _mirror(link: ClusterLink) -> MirrorTopic:
    own = ClusterLink.objects.select_related("destination__environment", "source").get(pk=link.pk)
    return create_mirror(link=own, source_topic="orders", by=SYSTEM, now=NOW)
