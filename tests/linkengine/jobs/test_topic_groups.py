"""The consumer groups of a topic with their lag, from real clusters, also while a broker does not respond."""

import time
from contextlib import closing

import pytest

from devcluster.kafka import OLDEST, KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.clusterviews import AclRule, GroupDescription, TopicGroup, TopicGroups
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.jobs import browsing
from linkengine.kafka import admin_groups, offsets, view_groups
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import BrokerError
from tests.conftest import MakeCluster
from tests.linkengine.sync.conftest import commit, fill, member

pytestmark = pytest.mark.kafka

CALL_S = 30.0  # after which a request for the page fails


@pytest.fixture(params=["newest", "oldest"])
def cluster(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> KafkaCluster:
    """A cluster of the newest brokers, or of the oldest supported brokers."""
    if request.param == "oldest":
        return make_cluster("oldest", version=OLDEST)
    shared: KafkaCluster = request.getfixturevalue("destination_cluster")
    return shared


def groups_of(address: ClusterAddress, topic: str) -> dict[str, TopicGroup]:
    return {group.group_id: group for group in browsing.topic_groups(address, topic).groups}


def test_groups_with_offsets_or_members_in_a_topic_have_their_lag(cluster: KafkaCluster, topic_name: str) -> None:
    address = address_from_properties(cluster.client_properties("link"))
    admin, elsewhere = ClusterAdmin(address), f"{topic_name}-elsewhere"
    admin.create_topic(topic_name, partitions=3)
    admin.create_topic(elsewhere, partitions=1)
    for partition, count in ((0, 10), (1, 20)):
        fill(cluster, topic_name, partition=partition, count=count)
    commit(admin, f"{topic_name}/all", topic_name, {0: 10, 1: 13, 2: 0})
    commit(admin, f"{topic_name}/some", topic_name, {0: 4})
    commit(admin, f"{topic_name}/beyond", topic_name, {0: 11, 1: 20})
    commit(admin, f"{topic_name}/other", elsewhere, {0: 0})

    with member(cluster, f"{topic_name}/reads", topic_name), member(cluster, f"{topic_name}/reads-other", elsewhere):
        found = browsing.topic_groups(address, topic_name)

    groups = {group.group_id.removeprefix(f"{topic_name}/"): group for group in found.groups}
    assert (found.partitions, found.incomplete) == (3, "")
    assert found.examined == found.listed >= 5
    assert set(groups) == {"all", "some", "beyond", "reads"}
    assert {name: (group.state, group.members) for name, group in groups.items()} == {
        "all": ("EMPTY", 0),
        "some": ("EMPTY", 0),
        "beyond": ("EMPTY", 0),
        "reads": ("STABLE", 1),
    }
    assert (groups["all"].lag, groups["all"].max_lag, groups["all"].known) == (7, 7, 3)
    assert (groups["some"].lag, groups["some"].max_lag, groups["some"].known) == (6, 6, 1)
    assert (groups["beyond"].lag, groups["beyond"].known) == (0, 1)  # partition 0 is unknown
    assert (groups["reads"].lag, groups["reads"].max_lag, groups["reads"].known) == (None, None, 0)  # it has committed nothing


def test_group_that_cannot_be_described_is_unknown(
    destination: ClusterAddress, destination_as_app: ClusterAddress, topic_name: str, rules: list[AclRule]
) -> None:
    admin, secret, public = ClusterAdmin(destination), f"{topic_name}/secret", f"{topic_name}/public"
    admin.create_topic(topic_name, partitions=1)
    for name in (secret, public):
        commit(admin, name, topic_name, {0: 0})
    about = {"pattern_type": "LITERAL", "principal": "User:app", "host": "*", "operation": "DESCRIBE"}
    rules += [
        AclRule(resource_type="CLUSTER", resource_name="kafka-cluster", permission="ALLOW", **about),
        AclRule(resource_type="GROUP", resource_name=secret, permission="DENY", **about),
    ]
    browsing.create_acls(destination, rules)

    found = groups_of(destination_as_app, topic_name)

    assert (found[public].state, found[public].lag, found[public].error) == ("EMPTY", 0, "")
    assert (found[secret].state, found[secret].lag, found[secret].members) == ("UNKNOWN", None, None)
    assert "GROUP_AUTHORIZATION_FAILED" in found[secret].error


def test_missing_topic_is_an_error(destination: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError) as missing:
        browsing.topic_groups(destination, "no-such-topic")

    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR


@pytest.mark.parametrize(("most", "budget_s", "examined"), [(1, 60.0, 1), (1000, 0.0, 0)])
def test_result_says_how_many_groups_were_examined(
    destination: ClusterAddress, topic_name: str, most: int, budget_s: float, examined: int
) -> None:
    admin = ClusterAdmin(destination)
    admin.create_topic(topic_name, partitions=1)
    for name in ("a", "b"):
        commit(admin, f"{topic_name}/{name}", topic_name, {0: 0})

    with closing(Cluster(destination)) as cluster:
        found = view_groups.of_topic(cluster, topic_name, most=most, budget_s=budget_s)

    assert found.examined == examined
    assert found.listed >= 2
    assert len(found.groups) <= examined


def test_log_end_that_cannot_be_read_leaves_the_lag_unknown(
    destination: ClusterAddress, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, group, list_offsets = ClusterAdmin(destination), f"{topic_name}/a", offsets.list_offsets
    admin.create_topic(topic_name, partitions=2)
    commit(admin, group, topic_name, {0: 0, 1: 0})
    with monkeypatch.context() as patch:
        patch.setattr(view_groups, "list_offsets", lambda *args, **how: {
            place: (74, -1) if place[1] else result for place, result in list_offsets(*args, **how).items()
        })  # fmt: skip
        some = browsing.topic_groups(destination, topic_name)
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise BrokerError(29, "The log ends cannot be read")

        patch.setattr(view_groups, "list_offsets", refuse)
        none = browsing.topic_groups(destination, topic_name)

    (partly,), (never,) = ([found for found in result.groups if found.group_id == group] for result in (some, none))
    assert (partly.lag, partly.known) == (0, 1)
    assert "The log end of some partitions (1) cannot be read: FENCED_LEADER_EPOCH" in some.incomplete
    assert (never.lag, never.max_lag, never.known) == (None, None, 0)
    assert "TOPIC_AUTHORIZATION_FAILED" in none.incomplete


class TwoBrokers:
    """A cluster of two brokers, which coordinate 120 groups with offsets in a topic.

    With one of them frozen there is no majority of controllers, so coordinators and leaders stay where they are.
    """

    topic, names = "orders", tuple(f"group-{number:03}" for number in range(120))

    def __init__(self, cluster: KafkaCluster) -> None:
        self.address = address_from_properties(cluster.client_properties("link"))
        self.near, self.frozen = cluster.brokers
        admin = ClusterAdmin(self.address)
        admin.create_topic(self.topic, partitions=8, replication_factor=1)
        for name in self.names:
            commit(admin, name, self.topic, dict.fromkeys(range(8), 0))
        with closing(Cluster(self.address)) as view:
            leaders = view.survey([self.topic]).topics[self.topic].partitions.values()
            groups = view_groups.described(view, self.names)
        self.near_partitions = sum(leader.broker == self.near for leader in leaders)
        found = {name: group for name, group in groups.items() if isinstance(group, GroupDescription)}
        self.near_groups = {name for name, group in found.items() if group.coordinator == self.near}
        assert 0 < self.near_partitions < 8
        assert 0 < len(self.near_groups) < len(self.names)
        assert {(group.lag, group.known) for group in groups_of(self.address, self.topic).values()} == {(0, 8)}

    def read(self) -> TopicGroups:
        """Return the groups of the topic; check that this takes less time than a request for a page has."""
        began = time.monotonic()
        found = browsing.topic_groups(self.address, self.topic)
        assert time.monotonic() - began < CALL_S
        return found

    def check_near(self, groups: dict[str, TopicGroup]) -> None:
        """Check that the groups of the other broker have their lag in its partitions."""
        assert set(groups) == self.near_groups
        assert {(group.state, group.lag, group.known) for group in groups.values()} == {("EMPTY", 0, self.near_partitions)}


@pytest.mark.timeout(240)
def test_groups_of_a_silent_broker_are_unknown_if_listed_and_otherwise_reported_as_missing(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, list_groups = make_cluster("two", brokers=2), admin_groups.list_groups
    two = TwoBrokers(cluster)

    def list_and_freeze(view: Cluster) -> object:
        listed = list_groups(view)
        cluster.pause(two.frozen)
        return listed

    with monkeypatch.context() as patch:
        patch.setattr(view_groups, "list_groups", list_and_freeze)
        found = two.read()
    later = two.read()
    cluster.resume(two.frozen)

    groups = {group.group_id: group for group in found.groups}
    assert found.examined == found.listed == len(groups) == len(two.names)
    two.check_near({name: group for name, group in groups.items() if not group.error})
    lost = [group for group in groups.values() if group.error]
    assert {(group.state, group.lag, group.max_lag, group.members) for group in lost} == {("UNKNOWN", None, None, None)}
    assert all("did not respond" in group.error for group in lost)
    assert "did not respond" in found.incomplete  # the log ends of its partitions

    assert "did not respond" in later.incomplete
    assert later.examined == later.listed == len(two.near_groups)
    two.check_near({group.group_id: group for group in later.groups})
