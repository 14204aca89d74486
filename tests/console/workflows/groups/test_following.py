"""Consumer groups on real clusters: they are synced, delay a promotion, and are reset by a stop."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from console.actors import SYSTEM
from console.mirrors.operation_actions import operate
from console.models import ClampedOffset, ClusterLink, GroupOffset, LinkConfig, LinkTask, MirrorTopic, SyncedGroup
from console.tasks.mirrors import advance_stop
from console.workflows import stopping, syncs
from devcluster.kafka import KafkaCluster
from linkengine.domain.acls import Acl
from linkengine.domain.errors import ErrorCode
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.protocol import BrokerError
from tests.console.conftest import NOW
from tests.console.workflows.conftest import Until
from tests.console.workflows.grouping import checks_of, commit, copy_in, fill, offsets_of, release_cleanly, run

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
WAIT_S = 60
A_RULE = Acl(
    resource_type="TOPIC",
    resource_name="",
    pattern_type="LITERAL",
    principal="",
    host="*",
    operation="READ",
    permission="ALLOW",
)


def test_run_stores_the_status_of_every_group(mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin) -> None:
    commit(there, f"{mirror.name}-app", mirror.name, {0: 40, 1: 95})
    commit(there, f"other-{mirror.name}", mirror.name, {0: 1})

    first, second = run(mirror), run(mirror)

    assert offsets_of(here, f"{mirror.name}-app", mirror.name) == {0: 40, 1: 60}
    assert (first.changes, second.changes) == (2, 0)
    assert first.errors == ()
    assert first.summary.startswith("Groups synced: 1;")
    other, app = SyncedGroup.objects.filter(name__contains=mirror.name).order_by("name")
    assert (app.status, other.status) == (GroupStatus.SYNCED, GroupStatus.EXCLUDED)
    assert "consumer.offset.group.filters" in other.message
    rows = list(GroupOffset.objects.values_list("partition", "source_offset", "destination_offset", "acted_source"))
    assert rows == [(0, 40, 40, 40), (1, 95, 60, 95)]


def test_offset_reset_at_the_source_is_recognised_by_the_stored_offset(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    commit(there, f"{mirror.name}-app", mirror.name, {0: 40})
    run(mirror)
    commit(there, f"{mirror.name}-app", mirror.name, {0: 3})

    run(mirror)

    assert offsets_of(here, f"{mirror.name}-app", mirror.name) == {0: 3}
    assert GroupOffset.objects.get().outcome == "REWOUND"


def test_group_that_the_source_no_longer_lists_is_kept_and_marked(mirror: MirrorTopic, there: ClusterAdmin) -> None:
    SyncedGroup.objects.create(link=mirror.link, name="gone", status="SYNCED", listed_at=NOW, destination_name="gone")
    commit(there, f"{mirror.name}-app", mirror.name, {0: 40})
    recent = SyncedGroup.objects.create(link=mirror.link, name="gone-now", status="SYNCED", listed_at=NOW)
    run(mirror)

    SyncedGroup.objects.filter(pk=recent.pk).delete()
    marked = SyncedGroup.objects.get(name=f"{mirror.name}-app")
    marked.name = "renamed"
    marked.save()
    run(mirror)

    assert not SyncedGroup.objects.filter(name="gone").exists()  # not listed for more than a day
    assert SyncedGroup.objects.get(name="renamed").status == GroupStatus.NOT_LISTED


def test_promotion_waits_until_a_group_is_no_longer_in_use(
    mirror: MirrorTopic,
    there: ClusterAdmin,
    here: ClusterAdmin,
    destination_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "DRAIN_S", 0.5)
    group = f"{mirror.name}-app"
    fill(destination_cluster, mirror.name, records=range(60, 100))
    release_cleanly(mirror, end=100)
    commit(there, group, mirror.name, {0: 70, 1: 80})
    consumer = Consumer({**destination_cluster.client("admin"), "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([mirror.name])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.2)
    operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)

    advance_stop(mirror_id=mirror.pk)

    mirror.refresh_from_db()
    assert mirror.state == MirrorState.PENDING_STOPPED
    error = mirror.transition_errors.get()
    assert error.code == "CONSUMER_GROUP_IN_USE_ERROR"
    assert group in error.message

    consumer.close()
    deadline = time.monotonic() + WAIT_S
    while mirror.state != MirrorState.STOPPED and time.monotonic() < deadline:
        advance_stop(mirror_id=mirror.pk)
        mirror.refresh_from_db()
    assert mirror.state == MirrorState.STOPPED
    assert offsets_of(here, group, mirror.name) == {0: 70, 1: 80}
    assert not ClampedOffset.objects.exists()


def test_failover_clamps_groups_to_the_mirrored_end_without_the_source(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, destination_cluster: KafkaCluster
) -> None:
    group = f"{mirror.name}-app"
    commit(there, group, mirror.name, {0: 20, 1: 95})
    run(mirror)
    copy_in(destination_cluster, mirror, records=range(60, 80))  # copied since the last run
    ClusterLink.objects.filter(pk=mirror.link_id).update(
        properties={"bootstrap.servers": "127.0.0.1:9", "security.protocol": "PLAINTEXT"}
    )
    operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)

    for _ in range(2):
        advance_stop(mirror_id=mirror.pk)

    assert MirrorTopic.objects.get().state == MirrorState.STOPPED
    assert offsets_of(here, group, mirror.name) == {0: 20, 1: 80}
    row = ClampedOffset.objects.get()
    assert (row.group, row.partition, row.source_offset, row.before, row.after) == (group, 1, 95, 60, 80)


def test_gate_is_red_if_groups_or_acls_differ_although_the_last_runs_had_no_error(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    group = f"{mirror.name}-app"
    commit(there, group, mirror.name, {0: 20})
    commit(here, group, mirror.name, {0: 50})  # ahead: not changed, and no error of the run
    assert run(mirror).errors == ()
    missing = replace(A_RULE, resource_name=mirror.name, principal=f"User:{mirror.name}")
    chosen = {"resourceFilter": {"resourceType": "any"}, "accessFilter": {"principal": missing.principal}}
    for name, value in (("acl.sync.enable", "true"), ("acl.filters", json.dumps({"aclFilters": [chosen]}))):
        LinkConfig.objects.create(link=mirror.link, name=name, value=value)
    for task in ("ConsumerOffsetSync", "AclSync"):
        LinkTask.objects.create(link=mirror.link, name=task, finished_at=NOW)
    assert there.create_acls([missing]) == {}
    until(lambda: missing in there.acls())  # the broker follows the controller

    before = checks_of(mirror)
    commit(here, group, mirror.name, {0: 20})
    assert here.create_acls([missing]) == {}
    until(lambda: missing in here.acls())
    after = checks_of(mirror)
    MirrorTopic.objects.update(state=MirrorState.STOPPED)
    stopped = checks_of(mirror)
    for admin in (there, here):
        admin.delete_acls([missing])

    assert [state for state, _ in before] == ["FAILED", "FAILED"]
    assert group in before[0][1]
    assert "1 ACLs of the source are missing on the destination" in before[1][1]
    assert [state for state, _ in after] == ["PASSED", "PASSED"], after
    assert stopped[0] == (
        "FAILED",
        "The topic is STOPPED now, so nothing was checked.",
    )  # its groups belong to its consumers again


def test_check_of_a_promotion_does_not_change_the_batches(mirror: MirrorTopic, there: ClusterAdmin) -> None:
    for name in ("a", "b"):
        commit(there, f"{mirror.name}-{name}", mirror.name, {0: 1})
    run(mirror)
    before = dict(SyncedGroup.objects.values_list("name", "looked_at"))

    assert syncs.group_blockers(mirror) == {}

    assert dict(SyncedGroup.objects.values_list("name", "looked_at")) == before


def test_group_without_describe_permission_does_not_count_as_deleted(
    mirror: MirrorTopic, there: ClusterAdmin, source_cluster: KafkaCluster, source_admin: AdminClient, until: Until
) -> None:
    """Without DESCRIBE on a group the list of groups lacks it, and no error is returned."""
    hidden, deleted = f"{mirror.name}-app", f"{mirror.name}-gone"
    ClusterLink.objects.update(properties=source_cluster.client_properties("app"))
    for group in (hidden, deleted):
        commit(there, group, mirror.name, {0: 40})
    assert run(mirror).errors == ()
    rule = replace(A_RULE, resource_type="GROUP", resource_name=hidden, principal="User:app", operation="DESCRIBE")
    assert there.create_acls([replace(rule, permission="DENY")]) == {}
    source_admin.delete_consumer_groups([deleted])[deleted].result(WAIT_S)
    until(lambda: run(mirror).errors)
    SyncedGroup.objects.filter(name=hidden).update(listed_at=NOW)  # more than a day ago

    again, blockers = run(mirror), syncs.group_blockers(MirrorTopic.objects.get(pk=mirror.pk))
    there.delete_acls([replace(rule, permission="DENY")])
    until(lambda: not run(mirror).errors)

    assert [hidden in error.message for error in again.errors] == [True]
    assert list(blockers) == ["WAITING_FOR_GROUPS"]
    assert "GROUP_AUTHORIZATION_FAILED" in blockers[ErrorCode.WAITING_FOR_GROUPS]
    assert "consumer.offset.group.filters" in blockers[ErrorCode.WAITING_FOR_GROUPS]
    rows = SyncedGroup.objects.filter(name__startswith=mirror.name)
    assert dict(rows.values_list("name", "status")) == {hidden: "SYNCED", deleted: "NOT_LISTED"}


def test_partition_that_cannot_be_committed_is_an_error_of_the_run(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, commit_all = f"{mirror.name}-app", ClusterAdmin.commit
    commit(there, group, mirror.name, {0: 20, 1: 95})
    commit(here, group, mirror.name, {0: 50})  # ahead: has a message too, and comes first

    def refuse_group(admin: ClusterAdmin, offsets: Any, **options: Any) -> Any:
        results = commit_all(admin, offsets, **options)
        return {name: result | {(mirror.name, 1): BrokerError(29, "No")} for name, result in results.items()}

    monkeypatch.setattr(ClusterAdmin, "commit", refuse_group)
    (error,) = run(mirror).errors

    assert f"'{group}': 1 of 2 offsets are left out, the others follow" in error.message
    assert "No: TOPIC_AUTHORIZATION_FAILED" in error.message
