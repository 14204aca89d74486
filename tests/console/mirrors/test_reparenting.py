"""Re-parenting a mirror to another link: permissions, refusals, and the rows afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.actors import Actor
from console.errors import ConflictError, ConsoleError, DeniedError, NotFoundError
from console.links.actions import delete_link
from console.mirrors.lineage import open_lineage
from console.mirrors.reparenting import Reparenting, possible_links, reparent
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
    there = [{**log, "end": parent, "stable_end": parent} for log in held]
    return {"topic_id": "c-id", "held": held, "parent_id": "b-id", "parent": there, **more}


@pytest.fixture
def heir(environment: Environment) -> Cluster:
    """Return another cluster, to hold a mirror of the same source topic."""
    return Cluster.objects.create(
        environment=environment, name="Heir", cluster_id="heir-id", bootstrap_servers="heir.test:9092", created_at=NOW
    )


@pytest.fixture
def onward(link: ClusterLink, heir: Cluster) -> ClusterLink:
    return _link("onward", link.destination, heir)


@pytest.fixture
def parent(link: ClusterLink, heir: Cluster, source: Cluster, make_mirror: MakeMirror) -> MirrorTopic:
    """Return a stopped mirror on the heir cluster, fenced at offset 15 of both partitions."""
    row = make_mirror("orders", S.STOPPED, link=_link("to-heir", heir, source), mirror_topic_id="b-id")
    row.partitions.update(stopped_end=15)
    return row


@pytest.fixture
def child(make_mirror: MakeMirror, parent: MirrorTopic, onward: ClusterLink, engine: Engine) -> MirrorTopic:
    """Return a paused mirror that ends at offsets 10 and 15."""
    assert parent.pk
    assert onward.pk
    row = make_mirror("orders", S.PAUSED, mirror_topic_id="c-id")
    open_lineage(mirror=row, starts={}, now=NOW)
    engine.responses["measure_reparenting"] = measured(10, 15)
    return row


def _link(name: str, here: Cluster, there: Cluster) -> ClusterLink:
    dated = {"state_since": NOW, "created_at": NOW, "created_by": "owner", "properties": {"bootstrap.servers": "x:1"}}
    return ClusterLink.objects.create(name=name, destination=here, source=there, source_cluster_id=there.cluster_id, **dated)


def move(child: MirrorTopic, by: Actor, *, link_name: str = "onward", validate_only: bool = False) -> Reparenting:
    mirror = MirrorTopic.objects.get(pk=child.pk)
    return reparent(mirror=mirror, link_name=link_name, validate_only=validate_only, by=by, now=NOW)


def test_paused_mirror_moves_with_the_same_ends_keys_and_producer_ids(
    child: MirrorTopic, owner: Actor, link: ClusterLink, onward: ClusterLink, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    before = [(assignment.key, assignment.producer_id) for assignment in plans.assignments_of(child)]

    moved = move(child, owner).mirror

    assert (moved.link, moved.source_topic_id, moved.state) == (onward, "b-id", S.PAUSED)
    assert [(assignment.key, assignment.producer_id) for assignment in plans.assignments_of(moved)] == before
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


def test_move_drops_equal_verified_ranges_and_keeps_those_that_differ(child: MirrorTopic, owner: Actor) -> None:
    for start, differences in ((0, 0), (4, 2), (6, 0)):
        dated = {"first_verified_at": NOW, "verified_at": NOW}
        child.verified_ranges.create(partition=0, start=start, end=start + 2, differences=differences, **dated)
    child.transition_errors.create(code=RECORDS_DIFFER, message="Offset 5 differs.", since=NOW, last_seen_at=NOW)

    moved = move(child, owner).mirror

    assert [(row.start, row.differences) for row in moved.verified_ranges.all()] == [(4, 2)]
    assert moved.transition_errors.get().code == RECORDS_DIFFER


def test_first_link_is_kept_by_a_second_move(child: MirrorTopic, owner: Actor, link: ClusterLink) -> None:
    MirrorTopic.objects.filter(pk=child.pk).update(first_link_number=77, first_link_uuid=link.link_uuid)

    assert move(child, owner).mirror.first_link_number == 77


def test_validate_only_measures_and_changes_nothing(child: MirrorTopic, owner: Actor, link: ClusterLink) -> None:
    preview = move(child, owner, validate_only=True)

    assert [(point.end, point.fence, point.to_copy) for point in preview.points] == [(10, 15, 10), (15, 15, 5)]
    assert MirrorTopic.objects.get(pk=child.pk).link == link
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize("reason", ["differs", "failed"])
def test_move_is_refused_if_the_parent_may_hold_other_records(child: MirrorTopic, owner: Actor, reason: str) -> None:
    """The end offsets of the parent do not prove its contents."""
    parent = MirrorTopic.objects.get(link__name="to-heir")
    if reason == "differs":
        parent.transition_errors.create(code=RECORDS_DIFFER, message="Offset 7 differs.", since=NOW, last_seen_at=NOW)
    else:
        steps = {"from_state": S.FAILED, "to_state": S.PENDING_STOPPED, "event": MirrorEvent.FAILOVER}
        parent.transitions.create(by="operator", at=NOW, **steps)

    with pytest.raises(ConflictError, match="cannot continue from it") as refused:
        move(child, owner)

    assert refused.value.code == ErrorCode.SIDES_DIVERGED


def test_mirror_ahead_of_the_fence_is_refused_with_partition_and_offsets(
    child: MirrorTopic, owner: Actor, engine: Engine, link: ClusterLink
) -> None:
    engine.responses["measure_reparenting"] = measured(10, 16)

    with pytest.raises(ConflictError, match="partition 1 ends at offset 16, 1 beyond offset 15") as refused:
        move(child, owner)

    assert refused.value.code == ErrorCode.SIDES_DIVERGED
    assert MirrorTopic.objects.get(pk=child.pk).link == link


@pytest.mark.parametrize("other", [{"topic_id": "new"}, {"parent_id": "new"}])
def test_move_is_refused_if_either_topic_was_created_again(
    child: MirrorTopic, owner: Actor, engine: Engine, other: dict[str, Any]
) -> None:
    engine.responses["measure_reparenting"] = measured(10, 15, **other)

    with pytest.raises(ConflictError, match="created again"):
        move(child, owner)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": S.ACTIVE}, "Pause it first"),
        ({"state": S.STOPPED}, "Only a mirror can move"),
        ({"holds_copy": False}, "Only a mirror can move"),
        ({"reversal": MirrorEvent.REVERSE_AND_START}, "Only a mirror can move"),
        ({"source_topic_id": "another"}, "same source topic"),
    ],
)
def test_move_that_the_rows_rule_out_is_refused_without_measuring(
    child: MirrorTopic, owner: Actor, engine: Engine, changes: dict[str, Any], message: str
) -> None:
    MirrorTopic.objects.filter(pk=child.pk).update(**changes)

    with pytest.raises(ConflictError, match=message):
        move(child, owner)
    assert not engine.calls


@pytest.mark.parametrize("changes", [{"state": S.ACTIVE}, {"holds_copy": False}, {"mirror_topic_id": ""}])
def test_only_a_stopped_copy_can_become_the_parent(
    child: MirrorTopic, parent: MirrorTopic, owner: Actor, changes: dict[str, Any]
) -> None:
    MirrorTopic.objects.filter(pk=parent.pk).update(**changes)

    with pytest.raises(ConflictError, match="no stopped mirror"):
        move(child, owner)
    assert not possible_links(MirrorTopic.objects.get(pk=child.pk), owner)


@pytest.mark.parametrize("changed", ["child", "parent"])
def test_move_is_refused_if_either_mirror_changed_during_the_measurement(
    child: MirrorTopic, parent: MirrorTopic, owner: Actor, monkeypatch: pytest.MonkeyPatch, link: ClusterLink, changed: str
) -> None:
    """The child was resumed and paused again, or the parent was restored and stopped again."""

    def call(task_name: str, **_: object) -> dict[str, Any]:
        assert task_name == "measure_reparenting"
        row = child if changed == "child" else parent
        MirrorTopic.objects.filter(pk=row.pk).update(state_since=NOW.replace(year=2027))
        return measured(10, 15)

    monkeypatch.setattr("console.queue.dispatch.call", call)

    with pytest.raises(ConflictError, match="at the same time"):
        move(child, owner)
    assert MirrorTopic.objects.get(pk=child.pk).link == link
    assert not LineageRange.objects.exclude(closed_at=None).exists()


def test_link_with_another_gap_filler_cannot_take_over(child: MirrorTopic, owner: Actor, onward: ClusterLink) -> None:
    ClusterLink.objects.filter(pk=onward.pk).update(gap_filler="transactions")

    with pytest.raises(ConflictError, match="different rights"):
        move(child, owner)


def test_unreleased_lease_of_a_copy_worker_is_reported(child: MirrorTopic, owner: Actor, engine: Engine) -> None:
    engine.refuses("measure_reparenting", LinkEngineError(ErrorCode.ILLEGAL_STATE, "The last owner may have crashed."))

    with pytest.raises(ConflictError, match="may have crashed"):
        move(child, owner)


def test_move_requires_a_visible_link_and_permission_on_the_mirror(
    child: MirrorTopic, owner: Actor, make_actor: MakeActor
) -> None:
    with pytest.raises(NotFoundError):
        move(child, owner, link_name="unknown")
    with pytest.raises(DeniedError):
        move(child, make_actor(RoleBinding.Role.DEVELOPER_READ))


@pytest.mark.parametrize(
    ("deleted", "message"),
    [("link going", "is being deleted"), ("link gone", "was deleted, or is being changed"), ("old link going", "was changed")],
)
def test_move_is_refused_if_either_link_is_deleted_during_the_measurement(
    child: MirrorTopic,
    owner: Actor,
    link: ClusterLink,
    onward: ClusterLink,
    engine: Engine,
    make_mirror: MakeMirror,
    monkeypatch: pytest.MonkeyPatch,
    deleted: str,
    message: str,
) -> None:
    """Both links existed when the measurement began."""
    if deleted == "link going":
        make_mirror("of onward", link=onward)

    def call(task: str, **values: Any) -> Any:
        delete_link(link=link if deleted == "old link going" else onward, force=deleted != "link gone", by=owner, now=NOW)
        return engine.call(task, **values)

    monkeypatch.setattr(dispatch, "call", call)

    with pytest.raises(ConsoleError, match=message):
        move(child, owner)

    assert MirrorTopic.objects.get(pk=child.pk).link == link
