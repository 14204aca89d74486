"""Consumer groups of any name and type, listed and described by a real cluster."""

import pytest

from devcluster.kafka import OLDEST, KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.clusterviews import AclRule
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Committed
from linkengine.jobs import browsing
from linkengine.kafka.admin import ClusterAdmin
from tests.conftest import MakeCluster
from tests.linkengine.sync.conftest import commit, member

pytestmark = pytest.mark.kafka

NAMES = (
    "",
    " ",
    " leading and trailing ",
    ".",
    "..",
    "data/x",
    "/",
    "//",
    "100%",
    "%2F",
    "a?b#c&d=e+f;g",
    "colon:alter",
    "line\nbreak\ttab\r",
    "nul\0inside",
    "\0",
    "quote'\"`<b>{{ x }}</b>\\",
    "ünïcödé-組-😀",
    "e\u0301 is not \u00e9",
    "\u202eright to left",
    "x" * 300,
    "long/" * 3000,
)
CLUSTER_DESCRIBE = {"pattern_type": "LITERAL", "principal": "User:app", "host": "*", "operation": "DESCRIBE"}


@pytest.fixture(params=["newest", "oldest"])
def address(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> ClusterAddress:
    """A cluster of the newest brokers, or of the oldest supported brokers."""
    if request.param == "newest":
        return address_from_properties(request.getfixturevalue("destination_cluster").client_properties("link"))
    return address_from_properties(make_cluster("oldest", version=OLDEST).client_properties("link"))


def test_a_group_of_any_name_is_listed_described_and_has_lags(address: ClusterAddress, topic_name: str) -> None:
    admin = ClusterAdmin(address)
    admin.create_topic(topic_name, partitions=1)
    for name in NAMES:
        commit(admin, name, topic_name, {0: 0})

    listed = browsing.list_groups(address)
    states = {group.group_id: (group.state, group.error) for group in listed.groups if group.group_id in NAMES}
    shown = {name: browsing.show_group(address, name) for name in NAMES}
    lags = {name: browsing.group_lags(address, name) for name in NAMES}

    assert listed.incomplete == ""
    assert states == dict.fromkeys(NAMES, ("EMPTY", ""))
    assert {name: group.group_id if group else None for name, group in shown.items()} == {name: name for name in NAMES}
    for name in NAMES:
        assert [(lag.partition, lag.lag) for lag in lags[name] or () if lag.topic == topic_name] == [(0, 0)], name


def test_a_group_that_cannot_be_described_is_listed_with_the_reason(
    destination: ClusterAddress, destination_as_app: ClusterAddress, topic_name: str, rules: list[AclRule]
) -> None:
    admin = ClusterAdmin(destination)
    admin.create_topic(topic_name, partitions=1)
    secret, public = f"{topic_name}/secret", f"{topic_name}/public"
    for name in (secret, public):
        commit(admin, name, topic_name, {0: 0})
    rules += [
        AclRule(resource_type="CLUSTER", resource_name="kafka-cluster", permission="ALLOW", **CLUSTER_DESCRIBE),
        AclRule(resource_type="GROUP", resource_name=secret, permission="DENY", **CLUSTER_DESCRIBE),
    ]
    browsing.create_acls(destination, rules)

    found = {group.group_id: group for group in browsing.list_groups(destination_as_app).groups}

    assert (found[public].state, found[public].error) == ("EMPTY", "")
    assert (found[secret].state, found[secret].coordinator) == ("UNKNOWN", -1)
    assert "GROUP_AUTHORIZATION_FAILED" in found[secret].error
    with pytest.raises(LinkEngineError) as refused:
        browsing.show_group(destination_as_app, secret)
    assert refused.value.code is ErrorCode.AUTHORIZATION_ERROR


def test_a_consumer_protocol_group_is_described_with_its_members(
    destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    ClusterAdmin(destination).create_topic(topic_name, partitions=2)
    group = f"{topic_name}/new protocol"
    settings = {"group.protocol": "consumer", "client.id": "an app"}

    with member(destination_cluster, group, topic_name, user="admin", settings=settings):
        shown = browsing.show_group(destination, group)

    assert shown is not None
    assert (shown.type, shown.state) == ("CONSUMER", "STABLE")
    assert [(member.client_id, member.assigned) for member in shown.members] == [("an app", ((topic_name, 0), (topic_name, 1)))]
    assert group in [listed.group_id for listed in browsing.list_groups(destination).groups]


def test_members_of_a_classic_group_are_described_with_their_partitions(
    destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    ClusterAdmin(destination).create_topic(topic_name, partitions=2)
    group = f"{topic_name}/classic"

    with member(destination_cluster, group, topic_name, user="admin", settings={"client.id": "a/b"}):
        shown = browsing.show_group(destination, group)

    assert shown is not None
    assert (shown.type, shown.state, shown.assignor, shown.is_simple) == ("CLASSIC", "STABLE", "range", False)
    assert [member.assigned for member in shown.members] == [((topic_name, 0), (topic_name, 1))]
    assert shown.members[0].consumer_id.startswith("a/b-")


def test_a_refused_offset_does_not_prevent_the_commit_of_others(destination: ClusterAddress, topic_name: str) -> None:
    admin = ClusterAdmin(destination)
    admin.create_topic(topic_name, partitions=1)
    commit(admin, "first", topic_name, {0: 0})  # creates the coordinator's topic
    offsets = {(topic_name, 0): Committed(offset=3), (f"no-{topic_name}", 0): Committed(offset=3)}

    results = admin.commit({f"{topic_name}/a": offsets})[f"{topic_name}/a"]
    found, _ = admin.committed([f"{topic_name}/a"])

    assert results[topic_name, 0] is None
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(results[f"no-{topic_name}", 0])
    assert found[f"{topic_name}/a"] == {(topic_name, 0): Committed(offset=3)}


def test_offsets_too_large_for_one_request_are_committed_in_several(destination: ClusterAddress, topic_name: str) -> None:
    admin = ClusterAdmin(destination)
    admin.create_topic(topic_name, partitions=300)
    name = topic_name + "n" * 20_000  # part of every record in __consumer_offsets: 6 MB in all
    offsets = {(topic_name, partition): Committed(offset=partition) for partition in range(300)}

    results = admin.commit({name: offsets})[name]
    found, _ = admin.committed([name])

    assert set(results.values()) == {None}
    assert found[name] == offsets
