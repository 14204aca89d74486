"""Offsets that a cluster refuses are left out; the other offsets of the group, and all other groups, are synced."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import ShareConsumer

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.clusterviews import AclRule
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Committed, GroupStatus, MirroredTopic, OffsetOutcome
from linkengine.domain.names import NameFilter
from linkengine.jobs import browsing
from linkengine.kafka import admin_groups
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.admin_groups import Offsets
from linkengine.kafka.cluster import Cluster
from tests.conftest import MakeCluster
from tests.linkengine.jobs.test_group_names import NAMES
from tests.linkengine.sync.conftest import WAIT_S, Link, commit, fill, offsets_of

pytestmark = pytest.mark.kafka


def test_groups_of_any_name_are_synced(link: Link, twin_topic: str) -> None:
    for name in NAMES:
        commit(link.there, name, twin_topic, {0: 40})

    report = link.run(filters=(NameFilter(name="*"),), batch=None)

    found = {group.name: group.status for group in report.groups if group.name in NAMES}
    assert found == dict.fromkeys(NAMES, GroupStatus.SYNCED)
    assert {name: offsets_of(link.here, name, twin_topic) for name in NAMES} == {name: {0: 40} for name in NAMES}


def test_every_group_of_any_name_is_in_a_batch(link: Link, twin_topic: str) -> None:
    for name in NAMES:
        commit(link.there, name, twin_topic, {0: 40})
    synced: list[str] = []
    after = ""

    while True:
        report = link.run(filters=(NameFilter(name="*"),), batch=5, after=after)
        synced += [group.name for group in report.groups if group.status is GroupStatus.SYNCED and group.name in NAMES]
        after = report.next_after
        if not after:
            break

    assert sorted(synced) == sorted(NAMES)


def test_an_unauthorized_topic_is_left_out_while_the_groups_other_offsets_are_synced(
    link: Link,
    group: str,
    twin_topic: str,
    destination: ClusterAddress,
    destination_as_app: ClusterAddress,
    denied: list[AclRule],
) -> None:
    hidden = f"{twin_topic}-hidden"
    link.there.create_topic(hidden, partitions=1)
    link.here.create_topic(hidden, partitions=1)
    ids = {"source_topic_id": link.there.describe(hidden).topic_id, "mirror_topic_id": link.here.describe(hidden).topic_id}
    topics = (*link.sync.topics, MirroredTopic(source_topic=hidden, mirror_topic=hidden, partitions=1, **ids))
    commit(link.there, group, twin_topic, {0: 40, 1: 20})
    commit(link.there, group, hidden, {0: 0})
    denied.append(
        AclRule(
            resource_type="TOPIC",
            resource_name=hidden,
            pattern_type="LITERAL",
            principal="User:app",
            host="*",
            operation="READ",
            permission="DENY",
        )
    )
    browsing.create_acls(destination, denied)

    link.here = ClusterAdmin(destination_as_app)
    outcome = link.outcome(group, topics=topics)

    assert offsets_of(link.here, group, twin_topic) == {0: 40, 1: 20}
    assert outcome.status is GroupStatus.FAILED
    assert outcome.message.startswith(f"1 of 3 offsets are left out, the others follow: {hidden} partition 0.")
    assert "TOPIC_AUTHORIZATION_FAILED" in outcome.message
    results = {(done.mirror_topic, done.partition): (done.outcome, done.written) for done in outcome.partitions}
    assert results == {
        (twin_topic, 0): (OffsetOutcome.ADVANCED, True),
        (twin_topic, 1): (OffsetOutcome.ADVANCED, True),
        (hidden, 0): (OffsetOutcome.FAILED, False),
    }


def test_an_offset_with_too_large_metadata_is_synced_without_it(
    link: Link, group: str, twin_topic: str, make_cluster: MakeCluster
) -> None:
    small = make_cluster("small", extra={"offset.metadata.max.bytes": 16})
    link.here = ClusterAdmin(address_from_properties(small.client_properties("link")))
    link.here.create_topic(twin_topic, partitions=2)
    fill(small, twin_topic, partition=0, count=60)
    mirror_topic_id = link.here.describe(twin_topic).topic_id
    commit(link.here, "first", twin_topic, {0: 0})  # creates the coordinator
    link.sync = replace(link.sync, topics=tuple(replace(topic, mirror_topic_id=mirror_topic_id) for topic in link.sync.topics))
    commit(link.there, group, twin_topic, {0: 40}, metadata="m" * 4000)
    commit(link.there, group, twin_topic, {1: 0}, metadata="short")

    first, again = link.outcome(group), link.outcome(group)

    found, _ = link.here.committed([group])
    assert found[group] == {(twin_topic, 0): Committed(offset=40), (twin_topic, 1): Committed(offset=0, metadata="short")}
    assert (first.status, again.status) == (GroupStatus.SYNCED, GroupStatus.SYNCED)
    assert "metadata of 4000 bytes is left out: offset.metadata.max.bytes" in first.message
    assert again.message == first.message
    assert [partition.written for partition in again.partitions] == [False, False]


def test_a_group_of_another_type_at_the_destination_fails_alone(
    link: Link, group: str, twin_topic: str, destination_cluster: KafkaCluster
) -> None:
    taken, free = f"{group}-taken", f"{group}-free"
    for name in (taken, free):
        commit(link.there, name, twin_topic, {0: 40})

    with share_group(destination_cluster, taken, twin_topic):
        outcomes = {outcome.name: outcome for outcome in link.run().groups if outcome.name in (taken, free)}

    assert outcomes[free].status is GroupStatus.SYNCED
    assert outcomes[taken].status in (GroupStatus.FAILED, GroupStatus.IN_USE)
    assert outcomes[taken].message


def test_a_commit_that_makes_the_broker_close_the_connection_fails_alone(
    link: Link, group: str, twin_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, commit_request = [f"{group}-{number}" for number in range(4)], admin_groups._commit_request
    for name in names:
        commit(link.there, name, twin_topic, {0: 40})

    def close_over_the_second(cluster: Cluster, broker: int, name: str, offsets: Offsets) -> object:
        if name == names[1]:
            raise LinkEngineError(ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, "The broker closed the connection.")
        return commit_request(cluster, broker, name, offsets)

    monkeypatch.setattr(admin_groups, "_commit_request", close_over_the_second)
    outcomes = {outcome.name: outcome.status for outcome in link.run().groups if outcome.name in names}

    assert [outcomes[name] for name in names] == [
        GroupStatus.SYNCED,
        GroupStatus.FAILED,
        GroupStatus.SYNCED,
        GroupStatus.SYNCED,
    ]


def test_an_unreadable_offset_response_fails_only_its_group(
    link: Link, group: str, twin_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, fetch = [f"{group}-{number}" for number in range(7)], admin_groups.fetch_offsets
    for name in names:
        commit(link.there, name, twin_topic, {0: 40})

    def break_over_the_fourth(cluster: Cluster, broker: int, wanted: Any, **options: Any) -> Any:
        if names[3] in wanted:
            raise LinkEngineError(ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, "A frame of 99999999 bytes is invalid.")
        return fetch(cluster, broker, wanted, **options)

    monkeypatch.setattr(admin_groups, "fetch_offsets", break_over_the_fourth)
    failed = [outcome.name for outcome in link.run().groups if outcome.name in names and outcome.status is GroupStatus.FAILED]

    assert failed == [names[3]]


@pytest.fixture
def denied(destination: ClusterAddress) -> Iterator[list[AclRule]]:
    """Yield a list of ACLs that are deleted after the test."""
    made: list[AclRule] = []
    yield made
    for rule in made:
        browsing.delete_acls(destination, rule, guarded=())


@contextmanager
def share_group(cluster: KafkaCluster, group: str, topic: str) -> Iterator[None]:
    """Run a share group with a single member inside the context."""
    consumer = ShareConsumer({**cluster.client("admin"), "group.id": group})
    consumer.subscribe([topic])
    admin, deadline = ClusterAdmin(address_from_properties(cluster.client_properties("link"))), time.monotonic() + WAIT_S
    while group not in admin.groups()[0]:
        assert time.monotonic() < deadline
        consumer.poll(0.2)
    yield
    consumer.close()
