"""Moving a mirror to another link: who may, when it is refused, and what the rows say afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.actions.links import delete_link
from console.actions.reparenting import Reparenting, possible_links, reparent
from console.actors import Actor
from console.errors import ConflictError, ConsoleError, DeniedError, NotFoundError
from console.mirrors.lineage import open_lineage
from console.models import (
    AuditEvent,
    Cluster,
    ClusterLink,
    Environment,
    LineageRange,
    MirrorPartition,
    MirrorTopic,
    RoleBinding,
)
from console.models.mirrors import RECORDS_DIFFER
from console.queue import dispatch
from console.reconciling import plans
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, Engine, MakeActor, MakeMirror

S = MirrorState
pytestmark = pytest.mark.usefixtures("sent")
Change = Callable[[], object]


def measured(*ends: int, parent: int = 20, **more: Any) -> dict[str, Any]:
    held = [{"partition": number, "start": 0, "end": end, "stable_end": end} for number, end in enumerate(ends)]
    there = [{**one, "end": parent, "stable_end": parent} for one in held]
    return {"topic_id": "c-id", "held": held, "parent_id": "b-id", "parent": there, **more}


@pytest.fixture
def heir(environment: Environment) -> Cluster:
    """Another cluster that has a mirror of the same source topic."""
    return Cluster.objects.create(
        environment=environment, name="Heir", cluster_id="heir-id", bootstrap_servers="heir.test:9092", created_at=NOW
    )


@pytest.fixture
def onward(link: ClusterLink, heir: Cluster) -> ClusterLink:
    return _link("onward", link.destination, heir)


@pytest.fixture
def parent(link: ClusterLink, heir: Cluster, source: Cluster, make_mirror: MakeMirror) -> MirrorTopic:
    """A stopped mirror at the heir, fenced at offset 15 of both partitions."""
    row = make_mirror("orders", S.STOPPED, link=_link("to-heir", heir, source), mirror_topic_id="b-id")
    row.partitions.update(stopped_end=15)
    return row


@pytest.fixture
def child(make_mirror: MakeMirror, parent: MirrorTopic, onward: ClusterLink, engine: Engine) -> MirrorTopic:
    """A paused mirror that ends at offset 10 and 15."""
    assert parent.pk
    assert onward.pk
    row = make_mirror("orders", S.PAUSED, mirror_topic_id="c-id")
    open_lineage(mirror=row, starts={}, now=NOW)
    engine.answers["measure_reparenting"] = measured(10, 15)
    return row


def _link(name: str, here: Cluster, there: Cluster) -> ClusterLink:
    dated = {"state_since": NOW, "created_at": NOW, "created_by": "owner", "properties": {"bootstrap.servers": "x:1"}}
    return ClusterLink.objects.create(name=name, destination=here, source=there, source_cluster_id=there.cluster_id, **dated)


def move(child: MirrorTopic, by: Actor, *, link_name: str = "onward", validate_only: bool = False) -> Reparenting:
    mirror = MirrorTopic.objects.get(pk=child.pk)
    return reparent(mirror=mirror, link_name=link_name, validate_only=validate_only, by=by, now=NOW)


def test_a_paused_mirror_goes_on_where_it_ends_under_the_same_names(
    child: MirrorTopic, owner: Actor, link: ClusterLink, onward: ClusterLink, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    before = [(one.key, one.producer_id) for one in plans.assignments_of(child)]

    moved = move(child, owner).mirror

    assert (moved.link, moved.source_topic_id, moved.state) == (onward, "b-id", S.PAUSED)
    assert [(one.key, one.producer_id) for one in plans.assignments_of(moved)] == before
    rows = LineageRange.objects.filter(mirror=child).values_list("partition", "start", "end", "origin_topic_id", "link_name")
    assert sorted(rows) == [
        (0, 0, 10, "topic-id", link.name),
        (0, 10, 10, "b-id", "onward"),
        (1, 0, 15, "topic-id", link.name),
        (1, 15, 15, "b-id", "onward"),
    ]
    assert set(MirrorPartition.objects.filter(mirror=child).values_list("source_end", flat=True)) == {None}
    assert moved.transitions.get().event == "re-parent"
    assert AuditEvent.objects.get(action="ReparentMirrorTopic").detail["from_link"] == link.name
    assert [kwargs["link_id"] for _, kwargs in sent] == [link.pk, onward.pk]


def test_what_was_compared_with_the_former_source_is_not_verified_and_what_differed_differs(
    child: MirrorTopic, owner: Actor
) -> None:
    for start, differences in ((0, 0), (4, 2), (6, 0)):
        dated = {"first_verified_at": NOW, "verified_at": NOW}
        child.verified_ranges.create(partition=0, start=start, end=start + 2, differences=differences, **dated)
    child.transition_errors.create(code=RECORDS_DIFFER, message="Offset 5 differs.", since=NOW, last_seen_at=NOW)

    moved = move(child, owner).mirror

    assert [(one.start, one.differences) for one in moved.verified_ranges.all()] == [(4, 2)]
    assert moved.transition_errors.get().code == RECORDS_DIFFER


def test_names_stay_also_after_a_second_move(child: MirrorTopic, owner: Actor, link: ClusterLink) -> None:
    MirrorTopic.objects.filter(pk=child.pk).update(first_link_number=77, first_link_uuid=link.link_uuid)

    assert move(child, owner).mirror.first_link_number == 77


def test_a_preview_measures_and_changes_nothing(child: MirrorTopic, owner: Actor, link: ClusterLink) -> None:
    told = move(child, owner, validate_only=True)

    assert [(one.end, one.fence, one.to_copy) for one in told.points] == [(10, 15, 10), (15, 15, 5)]
    assert MirrorTopic.objects.get(pk=child.pk).link == link
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize("why", ["differs", "failed"])
def test_a_mirror_does_not_go_on_behind_one_that_may_hold_other_records(child: MirrorTopic, owner: Actor, why: str) -> None:
    """Where the heir's topic ends says nothing of what it holds."""
    parent = MirrorTopic.objects.get(link__name="to-heir")
    if why == "differs":
        parent.transition_errors.create(code=RECORDS_DIFFER, message="Offset 7 differs.", since=NOW, last_seen_at=NOW)
    else:
        steps = {"from_state": S.FAILED, "to_state": S.PENDING_STOPPED, "event": MirrorEvent.FAILOVER}
        parent.transitions.create(by="somebody", at=NOW, **steps)

    with pytest.raises(ConflictError, match="cannot go on behind it") as refused:
        move(child, owner)

    assert refused.value.code == ErrorCode.SIDES_DIVERGED


def test_a_mirror_that_is_ahead_is_refused_with_partition_and_offsets(
    child: MirrorTopic, owner: Actor, engine: Engine, link: ClusterLink
) -> None:
    engine.answers["measure_reparenting"] = measured(10, 16)

    with pytest.raises(ConflictError, match="partition 1 ends at offset 16, 1 beyond offset 15") as refused:
        move(child, owner)

    assert refused.value.code == ErrorCode.SIDES_DIVERGED
    assert MirrorTopic.objects.get(pk=child.pk).link == link


@pytest.mark.parametrize("other", [{"topic_id": "new"}, {"parent_id": "new"}])
def test_a_topic_that_was_made_anew_proves_nothing(
    child: MirrorTopic, owner: Actor, engine: Engine, other: dict[str, str]
) -> None:
    engine.answers["measure_reparenting"] = measured(10, 15, **other)

    with pytest.raises(ConflictError, match="made anew"):
        move(child, owner)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": S.ACTIVE}, "Pause it first"),
        ({"state": S.STOPPED}, "Only a mirror can move"),
        ({"holds_copy": False}, "Only a mirror can move"),
        ({"reversal": MirrorEvent.REVERSE_AND_START}, "Only a mirror can move"),
        ({"source_topic_id": "another"}, "same source topic"),
    ],
)
def test_what_the_rows_rule_out_is_not_even_measured(
    child: MirrorTopic, owner: Actor, engine: Engine, changes: dict[str, Any], words: str
) -> None:
    MirrorTopic.objects.filter(pk=child.pk).update(**changes)

    with pytest.raises(ConflictError, match=words):
        move(child, owner)
    assert not engine.calls


@pytest.mark.parametrize("changes", [{"state": S.ACTIVE}, {"holds_copy": False}, {"mirror_topic_id": ""}])
def test_only_a_copy_that_was_stopped_can_become_the_parent(
    child: MirrorTopic, parent: MirrorTopic, owner: Actor, changes: dict[str, Any]
) -> None:
    MirrorTopic.objects.filter(pk=parent.pk).update(**changes)

    with pytest.raises(ConflictError, match="no stopped mirror"):
        move(child, owner)
    assert not possible_links(MirrorTopic.objects.get(pk=child.pk), owner)


@pytest.mark.parametrize("who", ["child", "parent"])
def test_what_changes_while_it_is_measured_undoes_the_proof(  # resumed and paused again; restored and stopped again
    child: MirrorTopic, parent: MirrorTopic, owner: Actor, monkeypatch: pytest.MonkeyPatch, link: ClusterLink, who: str
) -> None:
    def call(task_name: str, **_: object) -> dict[str, Any]:
        assert task_name == "measure_reparenting"
        row = child if who == "child" else parent
        MirrorTopic.objects.filter(pk=row.pk).update(state_since=NOW.replace(year=2027))
        return measured(10, 15)

    monkeypatch.setattr("console.queue.dispatch.call", call)

    with pytest.raises(ConflictError, match="at the same time"):
        move(child, owner)
    assert MirrorTopic.objects.get(pk=child.pk).link == link
    assert not LineageRange.objects.exclude(closed_at=None).exists()


def test_links_that_fill_gaps_in_different_ways_cannot_take_over(child: MirrorTopic, owner: Actor, onward: ClusterLink) -> None:
    ClusterLink.objects.filter(pk=onward.pk).update(gap_filler="transactions")

    with pytest.raises(ConflictError, match="different rights"):
        move(child, owner)


def test_a_copier_that_does_not_let_go_is_told(child: MirrorTopic, owner: Actor, engine: Engine) -> None:
    engine.refuses("measure_reparenting", LinkEngineError(ErrorCode.ILLEGAL_STATE, "The last copier may have died."))

    with pytest.raises(ConflictError, match="may have died"):
        move(child, owner)


def test_it_takes_rights_on_the_mirror_and_a_link_one_can_see(child: MirrorTopic, owner: Actor, make_actor: MakeActor) -> None:
    with pytest.raises(NotFoundError):
        move(child, owner, link_name="unknown")
    with pytest.raises(DeniedError):
        move(child, make_actor(RoleBinding.Role.DEVELOPER_READ))


@pytest.mark.parametrize(
    ("goes", "words"),
    [("link going", "is being deleted"), ("link gone", "was deleted, or is being changed"), ("old link going", "was changed")],
)
def test_a_mirror_does_not_move_while_a_link_of_the_two_goes(
    child: MirrorTopic,
    owner: Actor,
    link: ClusterLink,
    onward: ClusterLink,
    engine: Engine,
    make_mirror: MakeMirror,
    monkeypatch: pytest.MonkeyPatch,
    goes: str,
    words: str,
) -> None:
    """Both were there when the offsets were measured."""
    if goes == "link going":
        make_mirror("of onward", link=onward)

    def call(task: str, **values: Any) -> Any:
        delete_link(link=link if goes == "old link going" else onward, force=goes != "link gone", by=owner, now=NOW)
        return engine.call(task, **values)

    monkeypatch.setattr(dispatch, "call", call)

    with pytest.raises(ConsoleError, match=words):
        move(child, owner)

    assert MirrorTopic.objects.get(pk=child.pk).link == link
