"""Consumer groups on real clusters: they follow, hold a promotion up, are set back by a stop. Mirrors are filled by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer

from console.actions.operations import operate
from console.actors import SYSTEM
from console.models import ClampedOffset, ClusterLink, GateRun, GroupOffset, LinkConfig, LinkTask, MirrorTopic, SyncedGroup
from console.tasks import gates, groups, mirrors, stopping
from devcluster.kafka import KafkaCluster
from linkengine.domain.aclfilters import Acl
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.groups import Committed, GroupStatus
from linkengine.domain.linktasks import TaskOutcome
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.tasks.conftest import Until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
Commit = Callable[..., None]
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


def as_admin(cluster: KafkaCluster) -> ClusterAdmin:
    return ClusterAdmin(address_from_properties(cluster.client_properties("admin")))


@pytest.fixture
def there(source_cluster: KafkaCluster) -> ClusterAdmin:
    return as_admin(source_cluster)


@pytest.fixture
def here(destination_cluster: KafkaCluster) -> ClusterAdmin:
    return as_admin(destination_cluster)


@pytest.fixture
def mirror(new_mirror: MirrorTopic, destination_cluster: KafkaCluster) -> MirrorTopic:
    """A mirror of 100 records in each of two partitions, of which 60 are here; groups named like the topic follow."""
    filters = f'{{"groupFilters": [{{"name": "{new_mirror.name}", "patternType": "PREFIXED", "filterType": "INCLUDE"}}]}}'
    for name, value in (("consumer.offset.sync.enable", "true"), ("consumer.offset.group.filters", filters)):
        LinkConfig.objects.create(link=new_mirror.link, name=name, value=value)
    mirrors.setup_mirror(mirror_id=new_mirror.pk)
    fill(destination_cluster, new_mirror.name, records=range(60))
    return MirrorTopic.objects.select_related("link__destination__environment").get(pk=new_mirror.pk)


def fill(cluster: KafkaCluster, topic: str, *, records: range) -> None:
    producer = Producer(cluster.client("admin"))
    for number in records:
        for partition in range(2):
            producer.produce(topic, f"value {number * 2 + partition}", partition=partition)
    assert producer.flush(WAIT_S) == 0


def commit(admin: ClusterAdmin, group: str, topic: str, offsets: dict[int, int]) -> None:
    wanted = {(topic, partition): Committed(offset=offset) for partition, offset in offsets.items()}
    deadline = time.monotonic() + WAIT_S
    while any(refused := list(admin.commit({group: wanted})[group].values())):
        assert time.monotonic() < deadline, refused
        time.sleep(0.2)


def offsets_of(admin: ClusterAdmin, group: str, topic: str) -> dict[int, int]:
    found, _ = admin.committed([group])
    return {partition: one.offset for (name, partition), one in found[group].items() if name == topic}


def checks_of(mirror: MirrorTopic) -> list[tuple[str, str]]:
    """Run the gate once; answer how it judged groups and ACLs."""
    row = GateRun.objects.create(mirror=mirror, status="RUNNING", requested_by="test", requested_at=NOW)
    gates.advance_gate(run_id=row.pk)
    row.refresh_from_db()
    assert row.status == "RED"  # nothing was compared
    return [(one["state"], one["detail"]) for one in row.checks if one["name"] in ("GROUPS_SYNCED", "ACLS_SYNCED")]


def run(mirror: MirrorTopic) -> TaskOutcome:
    return groups.follow_groups(ClusterLink.objects.get(pk=mirror.link_id))


def test_a_run_leaves_how_every_group_stands(mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin) -> None:
    commit(there, f"{mirror.name}-app", mirror.name, {0: 40, 1: 95})
    commit(there, f"other-{mirror.name}", mirror.name, {0: 1})

    first, second = run(mirror), run(mirror)

    assert offsets_of(here, f"{mirror.name}-app", mirror.name) == {0: 40, 1: 60}
    assert (first.changes, second.changes) == (2, 0)
    assert first.errors == ()
    assert first.summary.startswith("Groups that follow: 1;")
    other, app = SyncedGroup.objects.filter(name__contains=mirror.name).order_by("name")
    assert (app.status, other.status) == (GroupStatus.SYNCED, GroupStatus.EXCLUDED)
    assert "consumer.offset.group.filters" in other.message
    rows = list(GroupOffset.objects.values_list("partition", "source_offset", "destination_offset", "acted_source"))
    assert rows == [(0, 40, 40, 40), (1, 95, 60, 95)]


def test_a_reset_of_the_source_is_recognised_by_what_was_remembered(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    commit(there, f"{mirror.name}-app", mirror.name, {0: 40})
    run(mirror)
    commit(there, f"{mirror.name}-app", mirror.name, {0: 3})

    run(mirror)

    assert offsets_of(here, f"{mirror.name}-app", mirror.name) == {0: 3}
    assert GroupOffset.objects.get().outcome == "REWOUND"


def test_a_group_that_the_source_lists_no_more_is_kept_and_marked(mirror: MirrorTopic, there: ClusterAdmin) -> None:
    SyncedGroup.objects.create(link=mirror.link, name="gone", status="SYNCED", listed_at=NOW, destination_name="gone")
    commit(there, f"{mirror.name}-app", mirror.name, {0: 40})
    recent = SyncedGroup.objects.create(link=mirror.link, name="gone-now", status="SYNCED", listed_at=NOW)
    run(mirror)

    SyncedGroup.objects.filter(pk=recent.pk).delete()
    marked = SyncedGroup.objects.get(name=f"{mirror.name}-app")
    SyncedGroup.objects.filter(pk=marked.pk).update(name="renamed")
    run(mirror)

    assert not SyncedGroup.objects.filter(name="gone").exists()  # for longer than a day
    assert SyncedGroup.objects.get(name="renamed").status == GroupStatus.NOT_LISTED


def test_a_promotion_waits_for_a_group_in_use_and_goes_on_when_it_is_free(
    mirror: MirrorTopic,
    there: ClusterAdmin,
    here: ClusterAdmin,
    destination_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "DRAIN_S", 0.5)
    group = f"{mirror.name}-app"
    fill(destination_cluster, mirror.name, records=range(60, 100))
    commit(there, group, mirror.name, {0: 70, 1: 80})
    consumer = Consumer({**destination_cluster.client("admin"), "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([mirror.name])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.2)
    operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)

    stopping.advance_stop(mirror_id=mirror.pk)

    mirror.refresh_from_db()
    assert mirror.state == MirrorState.PENDING_STOPPED
    error = mirror.transition_errors.get()
    assert error.code == "CONSUMER_GROUP_IN_USE_ERROR"
    assert group in error.message

    consumer.close()
    deadline = time.monotonic() + WAIT_S
    while mirror.state != MirrorState.STOPPED and time.monotonic() < deadline:
        stopping.advance_stop(mirror_id=mirror.pk)
        mirror.refresh_from_db()
    assert mirror.state == MirrorState.STOPPED
    assert offsets_of(here, group, mirror.name) == {0: 70, 1: 80}
    assert not ClampedOffset.objects.exists()


def test_a_failover_sets_groups_to_the_end_of_the_mirror_without_asking_the_source(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, destination_cluster: KafkaCluster
) -> None:
    group = f"{mirror.name}-app"
    commit(there, group, mirror.name, {0: 20, 1: 95})
    run(mirror)
    fill(destination_cluster, mirror.name, records=range(60, 80))  # copied since the last run
    ClusterLink.objects.filter(pk=mirror.link_id).update(
        properties={"bootstrap.servers": "127.0.0.1:9", "security.protocol": "PLAINTEXT"}
    )
    operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)

    for _ in range(2):
        stopping.advance_stop(mirror_id=mirror.pk)

    assert MirrorTopic.objects.get().state == MirrorState.STOPPED
    assert offsets_of(here, group, mirror.name) == {0: 20, 1: 80}
    row = ClampedOffset.objects.get()
    assert (row.group, row.partition, row.source_offset, row.before, row.after) == (group, 1, 95, 60, 80)


def test_the_gate_is_red_where_groups_or_acls_are_unequal_although_the_last_runs_left_no_error(
    mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    group = f"{mirror.name}-app"
    commit(there, group, mirror.name, {0: 20})
    commit(here, group, mirror.name, {0: 50})  # ahead: left alone, and no error of the run
    assert run(mirror).errors == ()
    missing = replace(A_RULE, resource_name=mirror.name, principal=f"User:{mirror.name}")
    chosen = {"resourceFilter": {"resourceType": "any"}, "accessFilter": {"principal": missing.principal}}
    for name, value in (("acl.sync.enable", "true"), ("acl.filters", json.dumps({"aclFilters": [chosen]}))):
        LinkConfig.objects.create(link=mirror.link, name=name, value=value)
    for task in ("ConsumerOffsetSync", "AclSync"):
        LinkTask.objects.create(link=mirror.link, name=task, finished_at=NOW)
    assert there.create_acls([missing]) == {}
    until(lambda: missing in there.acls())  # the broker that answers follows the controller

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
    assert "1 ACLs of the source are not here yet" in before[1][1]
    assert [state for state, _ in after] == ["PASSED", "PASSED"], after
    assert stopped[0] == (
        "FAILED",
        "The topic is STOPPED by now: nothing was looked at.",
    )  # its groups are its consumers' own again


def test_the_look_of_a_promotion_does_not_move_the_batches(mirror: MirrorTopic, there: ClusterAdmin) -> None:
    for name in ("a", "b"):
        commit(there, f"{mirror.name}-{name}", mirror.name, {0: 1})
    run(mirror)
    before = dict(SyncedGroup.objects.values_list("name", "looked_at"))

    assert groups.group_blockers(mirror) == {}

    assert dict(SyncedGroup.objects.values_list("name", "looked_at")) == before
