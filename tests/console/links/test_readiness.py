"""The stored facts from which the failover readiness of a link is derived."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.links.health_queries import link_readiness
from console.models import Drill, LinkConfig, LinkTask, MirrorPartition, MirrorTopic, SourceTopic, SyncedGroup, VerifiedRange
from console.models.mirrors import RECORDS_DIFFER
from console.reconciling import transition_errors
from linkengine.domain.failover import ReadyFact, ReadyState
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linktasks import TaskName
from linkengine.domain.states import MirrorState
from tests.browser.page_data import Scene, make_mirror, make_scene


@pytest.fixture
def scene(db: None) -> Scene:
    """A link with a single mirror topic that could be failed over at any time."""
    scene = make_scene()
    link, now = scene.link, scene.now
    link.mirrors.all().delete()
    link.drills.all().delete()
    link.tasks.all().delete()
    link.groups.all().delete()
    mirror = scene.mirrors["flights"] = make_mirror(link, "flights", MirrorState.ACTIVE, lag=0, rate=1.0, now=now)
    MirrorPartition.objects.filter(mirror=mirror).update(last_source_seen_at=now)
    SourceTopic.objects.filter(link=link, name="flights").update(retention_ms=604_800_000)
    LinkConfig.objects.filter(link=link, name="consumer.offset.sync.enable").update(value="true")
    dated = {"first_verified_at": now, "verified_at": now - timedelta(minutes=5)}
    VerifiedRange.objects.create(mirror=mirror, partition=0, start=0, end=10, **dated)
    LinkTask.objects.create(link=link, name=TaskName.CONSUMER_OFFSETS, succeeded_at=now - timedelta(seconds=20))
    SyncedGroup.objects.create(link=link, name="app", destination_name="app", status=GroupStatus.SYNCED, listed_at=now)
    SyncedGroup.objects.create(link=link, name="x", destination_name="x", status=GroupStatus.EXCLUDED, listed_at=now)
    drill(scene, Drill.Status.PASSED, ["flights"], age=timedelta(days=3))
    return scene


def drill(scene: Scene, status: str, topics: list[str], *, age: timedelta) -> None:
    at = scene.now - age
    about = {"start_spec": "latest", "requested_by": "amelia", "requested_at": at, "status_since": at, "finished_at": at}
    Drill.objects.create(link=scene.link, status=status, topics=topics, **about)


def states(scene: Scene) -> dict[ReadyFact, ReadyState]:
    scene.link.refresh_from_db()
    found = link_readiness(link=scene.link, now=scene.now)
    return {fact.fact: fact.state for fact in found.facts}


def test_link_with_all_facts_is_ready(scene: Scene) -> None:
    found = link_readiness(link=scene.link, now=scene.now)

    assert found.state is ReadyState.READY, found.sentence
    assert "1 consumer group synced 20 s ago" in found.sentence
    assert "with 7 d of retention" in found.sentence


def test_newest_finished_drill_counts(scene: Scene) -> None:
    drill(scene, Drill.Status.FAILED, ["flights"], age=timedelta(days=1))
    drill(scene, Drill.Status.CHECKING, ["flights"], age=timedelta(hours=1))
    assert states(scene)[ReadyFact.DRILL] is ReadyState.NOT_READY

    drill(scene, Drill.Status.PASSED, ["another"], age=timedelta(minutes=1))
    assert states(scene)[ReadyFact.DRILL] is ReadyState.UNKNOWN


def test_link_without_a_drill_keeps_its_other_facts(scene: Scene) -> None:
    scene.link.drills.all().delete()

    assert states(scene) == dict.fromkeys(ReadyFact, ReadyState.READY) | {ReadyFact.DRILL: ReadyState.UNKNOWN}


def test_mirror_that_was_never_verified_is_unknown(scene: Scene) -> None:
    make_mirror(scene.link, "late", MirrorState.ACTIVE, rate=1.0, now=scene.now)

    assert states(scene)[ReadyFact.VERIFICATION] is ReadyState.UNKNOWN


def test_stopped_mirrors_and_scratch_copies_do_not_count(scene: Scene) -> None:
    make_mirror(scene.link, "stopped", MirrorState.STOPPED, now=scene.now)
    scratch = make_mirror(scene.link, "scratch", MirrorState.ACTIVE, now=scene.now)
    MirrorTopic.objects.filter(pk=scratch.pk).update(drill=scene.link.drills.first())

    assert set(states(scene).values()) == {ReadyState.READY}


@pytest.mark.parametrize(
    ("code", "fact"), [(RECORDS_DIFFER, ReadyFact.VERIFICATION), ("AUTHORIZATION_ERROR", ReadyFact.RIGHTS)]
)
def test_errors_of_mirrors_count(scene: Scene, code: str, fact: ReadyFact) -> None:
    transition_errors.note(mirror=scene.mirrors["flights"], code=code, message="It is so.", now=scene.now)

    assert states(scene)[fact] is ReadyState.NOT_READY


def test_missing_right_of_a_task_counts(scene: Scene) -> None:
    scene.link.tasks.update(errors=[{"code": "AUTHORIZATION_ERROR", "message": "No."}], error_count=1)

    assert states(scene)[ReadyFact.RIGHTS] is ReadyState.NOT_READY


def test_group_with_an_error_counts(scene: Scene) -> None:
    scene.link.groups.filter(name="app").update(status=GroupStatus.FAILED)

    assert states(scene)[ReadyFact.GROUPS] is ReadyState.NOT_READY


@pytest.mark.parametrize("retention_ms", [None, "gone"])
def test_unknown_retention_is_unknown(scene: Scene, retention_ms: int | str | None) -> None:
    topics = SourceTopic.objects.filter(link=scene.link, name="flights")
    topics.delete() if retention_ms == "gone" else topics.update(retention_ms=None)

    assert states(scene)[ReadyFact.RETENTION] is ReadyState.UNKNOWN


def test_unlimited_retention_is_not_the_shortest(scene: Scene) -> None:
    SourceTopic.objects.filter(link=scene.link, name="flights").update(retention_ms=-1)

    assert states(scene)[ReadyFact.RETENTION] is ReadyState.READY


def test_mirror_without_partitions_makes_the_lag_unknown(scene: Scene) -> None:
    MirrorPartition.objects.filter(mirror=scene.mirrors["flights"]).delete()

    assert states(scene)[ReadyFact.RETENTION] is ReadyState.UNKNOWN


def test_mirror_without_recent_reports_is_not_ready(scene: Scene) -> None:
    MirrorPartition.objects.filter(mirror=scene.mirrors["flights"]).update(observed_at=scene.now - timedelta(minutes=2))
    MirrorTopic.objects.update(state_since=scene.now - timedelta(hours=1))
    type(scene.link).objects.update(state_since=scene.now - timedelta(hours=1))

    assert states(scene)[ReadyFact.HEALTH] is ReadyState.NOT_READY


def test_alarm_of_a_mirror_is_not_ready(scene: Scene) -> None:
    transition_errors.note(mirror=scene.mirrors["flights"], code="SOURCE_TRUNCATED", message="Records are lost.", now=scene.now)

    assert states(scene)[ReadyFact.HEALTH] is ReadyState.NOT_READY


def test_more_mirrors_need_no_more_queries(scene: Scene) -> None:
    for number in range(20):
        make_mirror(scene.link, f"extra-{number}", MirrorState.ACTIVE, rate=1.0, now=scene.now)

    with CaptureQueriesContext(connection) as queries:
        link_readiness(link=scene.link, now=scene.now)

    assert len(queries) == 6
