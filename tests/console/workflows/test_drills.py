"""A drill on real clusters: scratch copies are failed over, compared, written to and deleted; the mirror is unaffected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from django.utils import timezone

from console.actors import SYSTEM
from console.models import ClusterLink, Drill, GroupOffset, LinkConfig, MirrorPartition, MirrorTopic, SyncedGroup
from console.tasks.links import reconcile_link
from console.tasks.mirrors import continue_drills, setup_mirror
from console.verification import drill_actions
from console.verification.drill_actions import cancel_drill, start_drill
from linkengine.domain.failover import scratch_name
from linkengine.domain.states import MirrorState
from tests.console.workflows.conftest import Until
from tests.topics import create_topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_drill_fails_over_scratch_copies_only_and_fails_if_no_record_of_a_filled_topic_was_compared(
    new_mirror: MirrorTopic,
    link: ClusterLink,
    worker: Callable[[], None],
    until: Until,
    spark_connect_url: str,
    source_admin: AdminClient,
    destination_admin: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def after_pass(condition: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            continue_drills()
            reconcile_link(link_id=link.pk)
            worker()
            return condition()

        return run

    setup_mirror(mirror_id=new_mirror.pk)
    rows = MirrorPartition.objects.filter(mirror=new_mirror)
    until(after_pass(lambda: [row.mirror_end for row in rows.all()] == [100, 100]))
    monkeypatch.setattr(drill_actions, "BATCH", 1)
    empty = _empty_mirror(new_mirror, source_admin)
    _follow(new_mirror, "app-drill", {0: 60, 1: 130})

    drill = start_drill(link=link, start_spec="earliest", by=SYSTEM, now=timezone.now())
    scratch = f"{new_mirror.name}.clusterlink-drill-{drill.pk}"
    until(after_pass(lambda: Drill.objects.get().status in ("PASSED", "FAILED")))

    drill.refresh_from_db()
    assert (drill.status, drill.problem) == ("PASSED", "")
    row, nothing = drill.report  # a row per batch
    assert (nothing["mirror_topic_name"], nothing["note"]) == (empty.name, "The source is empty. There was nothing to compare.")
    assert drill.groups == [
        {
            "group": "app-drill",
            "mirror_topic_name": new_mirror.name,
            "partitions": 2,
            "clamped": 1,
            "offsets_set_back": 30,
            "unknown": 0,
            "clamped_offsets": [{"partition": 1, "source_offset": 130, "offset_after": 100}],
        }
    ]
    assert "app-drill" not in {group.group_id for group in destination_admin.list_consumer_groups().result(30).valid}
    assert (row["mirror_topic_name"], row["records_compared"], row["differences"]) == (new_mirror.name, 200, 0)
    assert row["writable"]
    assert drill.rto_ms is not None
    assert scratch not in destination_admin.list_topics(timeout=10).topics
    assert not MirrorTopic.objects.filter(drill=drill).exists()
    assert set(MirrorTopic.objects.values_list("state", flat=True)) == {MirrorState.ACTIVE}
    assert [row.mirror_end for row in rows.all()] == [100, 100]

    quiet = start_drill(link=link, names=[new_mirror.name], start_spec="latest", by=SYSTEM, now=timezone.now())
    until(after_pass(lambda: Drill.objects.get(pk=quiet.pk).status in ("PASSED", "FAILED")))

    quiet.refresh_from_db()
    (row,) = quiet.report
    assert (quiet.status, row["records_compared"], row["writable"]) == ("FAILED", 0, True)
    assert row["problem"].startswith("Nothing was compared in partition 0, 1:")

    canceled = _cancel_with_a_scratch_topic(link, until, after_pass, destination_admin)
    assert (canceled.status, canceled.canceled_by) == ("CANCELED", SYSTEM.name)
    assert set(MirrorTopic.objects.values_list("name", "state")) == {(new_mirror.name, "ACTIVE"), (empty.name, "ACTIVE")}
    assert {new_mirror.name, empty.name} <= destination_admin.list_topics(timeout=10).topics.keys()
    assert [row.mirror_end for row in rows.all()] == [100, 100]


def _cancel_with_a_scratch_topic(
    link: ClusterLink, until: Until, after_pass: Callable[..., Callable[[], Any]], destination_admin: AdminClient
) -> Drill:
    """Cancel a drill of all mirrors as soon as the destination has a scratch topic; check that it deletes all of them."""
    drill = start_drill(link=link, start_spec="earliest", by=SYSTEM, now=timezone.now())

    def scratch_topics() -> list[str]:
        listed = destination_admin.list_topics(timeout=10).topics
        return [name for name in drill.topics if scratch_name(name, drill=drill.pk) in listed]

    until(after_pass(scratch_topics))
    cancel_drill(drill=drill, by=SYSTEM, now=timezone.now())
    until(after_pass(lambda: Drill.objects.get(pk=drill.pk).finished_at))
    assert scratch_topics() == []
    return Drill.objects.get(pk=drill.pk)


def _empty_mirror(beside: MirrorTopic, source_admin: AdminClient) -> MirrorTopic:
    """Create a mirror of a topic without records; its name sorts last."""
    name = f"{beside.name}-empty"
    create_topics(source_admin, NewTopic(name, 1, 1))
    dated = {"state_since": beside.state_since, "created_at": beside.created_at}
    mirror = MirrorTopic.objects.create(link=beside.link, name=name, source_topic=name, **dated)
    setup_mirror(mirror_id=mirror.pk)
    return mirror


def _follow(mirror: MirrorTopic, group: str, offsets: dict[int, int]) -> None:
    """Create the rows that a run of the consumer offset sync would."""
    LinkConfig.objects.create(link=mirror.link, name="consumer.offset.sync.enable", value="true")
    named = {"name": group, "destination_name": group, "status": "SYNCED", "listed_at": timezone.now()}
    row = SyncedGroup.objects.create(link=mirror.link, **named)
    for partition, offset in offsets.items():
        seen = {"source_offset": offset, "target": min(offset, 100), "outcome": "EQUAL"}
        GroupOffset.objects.create(group=row, mirror=mirror, partition=partition, **seen)
