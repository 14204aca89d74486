"""Each sync while its source is changing: nothing wrong in between, and equal once the source stops changing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from console.models import ClusterLink, ConfigRevert, LinkConfig, MirrorTopic
from console.tasks.mirrors import setup_mirror
from console.workflows import syncs
from devcluster.kafka import KafkaCluster
from linkengine.domain.acls import Acl
from linkengine.domain.groups import Committed
from linkengine.domain.states import MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.workflows.conftest import Until
from tests.console.workflows.grouping import fill
from tests.console.workflows.reversal import Drive, records, write
from tests.topics import create_topics

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
RUNS = 4  # of the sync during the changes
RETENTION, COMPACTION = "retention.ms", "delete.retention.ms"


@contextmanager
def changing(change: Callable[[int], object]) -> Iterator[Callable[[], int]]:
    """Change the source repeatedly in another thread. Yields a function that returns the number of changes."""
    over, done, failures = Event(), [0], list[BaseException]()

    def work() -> None:
        try:
            for number in count():
                if over.is_set():
                    return
                change(number)
                done[0] = number + 1
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread below
            failures.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        over.set()
        thread.join(90)
    assert not failures, failures


def runs(changes: Callable[[], int]) -> Iterator[None]:
    """Yield RUNS times, and then until the source has changed at least twice."""
    for number in range(100):
        if number >= RUNS and changes() > 1:
            return
        yield
    raise AssertionError(f"the source has changed {changes()} times")


def switch_on(link: ClusterLink, **configs: str) -> None:
    for name, value in configs.items():
        LinkConfig.objects.create(link=link, name=name.replace("_", "."), value=value)


def fresh(link: ClusterLink) -> ClusterLink:
    return ClusterLink.objects.select_related("destination", "source").get(pk=link.pk)


def filters_for(prefix: str, *more: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": prefix, "patternType": "PREFIXED", "filterType": "INCLUDE"}, *more]


def test_moving_groups_are_never_moved_back_or_past_the_mirror(
    new_mirror: MirrorTopic, there: ClusterAdmin, here: ClusterAdmin, destination_cluster: KafkaCluster
) -> None:
    link, topic = new_mirror.link, new_mirror.name
    filters = json.dumps({"groupFilters": filters_for(topic)})
    switch_on(link, consumer_offset_sync_enable="true", consumer_offset_group_filters=filters)
    setup_mirror(mirror_id=new_mirror.pk)
    fill(destination_cluster, topic, records=range(60))
    names = [f"{topic}-{letter}" for letter in "abc"]

    def commit(number: int) -> None:
        offset = Committed(offset=min(100, 1 + 3 * number))
        there.commit({name: {(topic, 0): offset} for name in names})

    def committed() -> dict[str, int]:
        found, _ = here.committed(names)
        return {name: found[name][topic, 0].offset for name in names if (topic, 0) in found.get(name, {})}

    before: dict[str, int] = {}
    with changing(commit) as changes:
        for _ in runs(changes):
            syncs.follow_groups(fresh(link))
            now = committed()
            assert all(before.get(name, 0) <= now.get(name, 0) <= 60 for name in names)
            before = now
    there.commit({name: {(topic, 0): Committed(offset=40 + 30 * (name == names[0]))} for name in names})
    syncs.follow_groups(fresh(link))
    syncs.follow_groups(fresh(link))

    assert committed()[names[0]] == 60
    assert syncs.follow_groups(fresh(link)).errors == ()


def test_acls_that_come_and_go_leave_no_trace_and_no_local_acl_changes(
    link: ClusterLink, topic_name: str, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    principal = f"User:{topic_name}"

    def rule(operation: str) -> Acl:
        return Acl(
            resource_type="TOPIC",
            resource_name=topic_name,
            pattern_type="LITERAL",
            principal=principal,
            host="*",
            operation=operation,
            permission="ALLOW",
        )

    def of(admin: ClusterAdmin) -> set[Acl]:
        return {acl for acl in admin.acls() if acl.principal == principal}

    def add_and_remove(number: int) -> None:
        change = there.create_acls if number % 2 == 0 else there.delete_acls
        assert change([rule("READ"), rule("DESCRIBE")]) == {}

    filters = {"aclFilters": [{"resourceFilter": {"resourceType": "any"}, "accessFilter": {"principal": principal}}]}
    switch_on(link, acl_sync_enable="true", acl_filters=json.dumps(filters))
    assert here.create_acls([rule("WRITE")]) == {}
    until(lambda: rule("WRITE") in of(here))
    with changing(add_and_remove) as changes:
        for _ in runs(changes):
            assert syncs.follow_acls(fresh(link)).errors == ()
            assert rule("WRITE") in of(here)
    there.create_acls([rule("READ"), rule("ALTER")])
    there.delete_acls([rule("DESCRIBE")])
    until(lambda: of(there) == {rule("READ"), rule("ALTER")})

    def equal() -> bool:
        syncs.follow_acls(fresh(link))
        return of(here) == {rule("READ"), rule("ALTER"), rule("WRITE")}

    until(equal)
    there.delete_acls(list(of(there)))
    here.delete_acls(list(of(here)))


@pytest.mark.usefixtures("copier")
def test_changing_configs_are_no_local_edits_and_new_partitions_are_copied(
    new_mirror: MirrorTopic,
    source_admin: AdminClient,
    there: ClusterAdmin,
    here: ClusterAdmin,
    until: Until,
    drive: Drive,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    setup_mirror(mirror_id=new_mirror.pk)
    link, topic = new_mirror.link, new_mirror.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)

    def alter(number: int) -> None:
        there.set_configs(topic, {RETENTION: str(3_600_000 + number), COMPACTION: str(90_000_000 + number)})
        if number in (2, 4):
            grown = NewPartitions(topic, 2 + number // 2)
            source_admin.create_partitions([grown])[topic].result(30)
            until(lambda: write(source_cluster, topic, "before the mirror has it", partition=1 + number // 2) == [None])

    with changing(alter) as changes:
        for _ in range(RUNS):
            errors = syncs.follow_topics(fresh(link)).errors
            assert all("Two readings" in error.message for error in errors)  # configs are applied once two are equal
        until(lambda: changes() > 5)

    def equal() -> bool:
        assert syncs.follow_topics(fresh(link)).errors == ()
        mirrored, original_topic = here.describe(topic), there.describe(topic)
        same = mirrored.configs[COMPACTION] == original_topic.configs[COMPACTION]
        return same and mirrored.partitions == original_topic.partitions == 4

    until(equal)
    row = MirrorTopic.objects.get()
    assert (row.state, row.num_partitions) == (MirrorState.ACTIVE, 4)
    assert row.source_configs[RETENTION] == there.describe(topic).configs[RETENTION]
    assert not ConfigRevert.objects.exists()

    for partition in (2, 3):
        assert write(source_cluster, topic, "a", "b", partition=partition) == [None, None]
    original = records(source_cluster, topic, partitions=4)
    assert len(original) == 200 + 2 * 3
    drive(lambda: records(destination_cluster, topic, partitions=4) == original)


def test_topics_created_during_auto_create_are_all_mirrored_once(
    link: ClusterLink, topic_name: str, source_admin: AdminClient, until: Until
) -> None:
    excluded = {"name": f"{topic_name}.x", "patternType": "PREFIXED", "filterType": "EXCLUDE"}
    filters = json.dumps({"topicFilters": filters_for(f"{topic_name}.", excluded)})
    switch_on(link, auto_create_mirror_topics_enable="true", auto_create_mirror_topics_filters=filters)
    made: set[str] = set()

    def make(number: int) -> None:
        if number >= 12:
            return
        name = f"{topic_name}.{'x' if number % 4 == 3 else 'm'}{number}"
        create_topics(source_admin, NewTopic(name, 1, 1))
        if number % 4 == 1:
            source_admin.delete_topics([name])[name].result(30)
        elif number % 4 != 3:
            made.add(name)

    with changing(make) as changes:
        for _ in range(RUNS):
            syncs.create_mirrors(fresh(link))
        until(lambda: changes() >= 12)

    def all_there() -> bool:
        syncs.create_mirrors(fresh(link))
        return made <= set(MirrorTopic.objects.values_list("name", flat=True))

    until(all_there)
    names = list(MirrorTopic.objects.values_list("name", flat=True))
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith(f"{topic_name}.x")]
    assert syncs.create_mirrors(fresh(link)).changes == 0
