"""Topics, ACLs and consumer groups of a real cluster, as the REST API shows and changes them."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import AclRule
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.jobs import browsing
from linkengine.kafka import admin_acls
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.views import FOR_ALL

pytestmark = pytest.mark.kafka
EVERYTHING = AclRule(
    resource_type="ANY",
    resource_name=None,
    pattern_type="ANY",
    principal=None,
    host=None,
    operation="ANY",
    permission="ANY",
)


def acl(topic: str, **changes: str) -> AclRule:
    fields = {"principal": "User:app", "host": "*", "operation": "READ", "permission": "ALLOW", **changes}
    return AclRule(resource_type="TOPIC", resource_name=topic, pattern_type="LITERAL", **fields)


@pytest.fixture
def topic(destination: ClusterAddress, topic_name: str) -> Iterator[str]:
    browsing.create_topic(destination, topic_name, partitions=2, replication_factor=1, configs={"segment.ms": "60000"})
    yield topic_name
    browsing.delete_topic(destination, topic_name)


def test_a_topic_is_created_grown_and_deleted(destination: ClusterAddress, topic_name: str) -> None:
    assert browsing.create_topic(destination, topic_name, partitions=1, validate_only=True) is None
    with pytest.raises(LinkEngineError) as missing:
        browsing.show_topic(destination, topic_name)
    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR

    made = browsing.create_topic(destination, topic_name, configs={"segment.ms": "60000"})

    assert made is not None
    assert (made.partitions, made.replication_factor, made.configs) == (1, 1, {"segment.ms": "60000"})
    assert browsing.grow_topic(destination, topic_name, partitions=3).partitions == 3
    with pytest.raises(LinkEngineError, match="grow topic"):
        browsing.grow_topic(destination, topic_name, partitions=2)
    with pytest.raises(LinkEngineError) as twice:
        browsing.create_topic(destination, topic_name)
    assert twice.value.code is ErrorCode.TOPIC_EXISTS_ERROR
    assert browsing.delete_topic(destination, topic_name)
    assert not browsing.delete_topic(destination, topic_name)


def test_partitions_have_replicas_and_a_leader(destination: ClusterAddress, topic: str) -> None:
    found = browsing.topic_partitions(destination, topic)

    assert [view.partition for view in found] == [0, 1]
    for view in found:
        assert [(replica.leader, replica.in_sync) for replica in view.replicas] == [(True, True)]
        assert view.replicas[0].broker == view.leader


def test_configs_have_a_source_and_synonyms(destination: ClusterAddress, topic: str) -> None:
    found = {view.name: view for view in browsing.topic_configs(destination, topic)}

    own = found["segment.ms"]
    assert (own.value, own.is_default, own.source) == ("60000", False, "DYNAMIC_TOPIC_CONFIG")
    assert own.synonyms[0].source == "DYNAMIC_TOPIC_CONFIG"
    assert found["retention.ms"].is_default
    assert found["retention.ms"].source in ("DEFAULT_CONFIG", "STATIC_BROKER_CONFIG")


def test_configs_are_validated_set_and_reset(destination: ClusterAddress, topic: str) -> None:
    for values in ({"retention.ms": "many"}, {"no.such.config": "1"}):
        with pytest.raises(LinkEngineError, match="configs of topic"):
            browsing.alter_topic_configs(destination, topic, values=values, deletions=(), validate_only=True)
    browsing.alter_topic_configs(destination, topic, values={"retention.ms": "1000"}, deletions=(), validate_only=True)
    assert "retention.ms" not in browsing.show_topic(destination, topic).configs

    browsing.alter_topic_configs(destination, topic, values={"retention.ms": "1000"}, deletions=("segment.ms",))

    assert browsing.show_topic(destination, topic).configs == {"retention.ms": "1000"}


def test_acls_are_created_listed_and_deleted(destination: ClusterAddress, topic_name: str) -> None:
    wanted = [acl(topic_name), acl(topic_name, operation="WRITE")]

    browsing.create_acls(destination, wanted)
    browsing.create_acls(destination, wanted[:1])  # again

    assert [rule for rule in browsing.list_acls(destination, EVERYTHING) if rule.resource_name == topic_name] == wanted
    deleted = browsing.delete_acls(destination, acl(topic_name, operation="ANY"), guarded=())
    assert deleted == wanted
    assert browsing.list_acls(destination, acl(topic_name, operation="ANY")) == []


def test_an_empty_acl_list_that_the_broker_contradicts_is_requested_again(
    destination: ClusterAddress, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ACL was created, or became visible to the principal, between the two requests."""
    replies = [False, False, True]
    monkeypatch.setattr(admin_acls, "is_empty", lambda *_, **__: replies.pop(0))
    assert browsing.list_acls(destination, acl(topic_name)) == []
    assert replies == []

    monkeypatch.setattr(admin_acls, "AGREE_S", 0.0)
    monkeypatch.setattr(admin_acls, "is_empty", lambda *_, **__: False)
    with pytest.raises(LinkEngineError, match="contradict each other") as refused:
        browsing.list_acls(destination, acl(topic_name))
    assert refused.value.code is ErrorCode.TIMEOUT_ERROR


def test_a_cluster_acl_has_the_resource_type_cluster(destination: ClusterAddress) -> None:
    rule = AclRule(
        resource_type="CLUSTER",
        resource_name="kafka-cluster",
        pattern_type="LITERAL",
        principal="User:nobody",
        host="*",
        operation="DESCRIBE",
        permission="ALLOW",
    )

    browsing.create_acls(destination, [rule])

    assert browsing.delete_acls(destination, rule, guarded=()) == [rule]


@pytest.mark.parametrize("changes", [{"operation": "ANY"}, {"permission": "UNKNOWN"}, {"operation": "DANCE"}])
def test_an_acl_with_words_of_filters_is_not_created(destination: ClusterAddress, changes: dict[str, str]) -> None:
    with pytest.raises(LinkEngineError) as refused:
        browsing.create_acls(destination, [acl("any", **changes)])

    assert refused.value.code is ErrorCode.INVALID_REQUEST_ERROR


def test_the_guard_of_a_mirror_is_not_deleted(destination: ClusterAddress, topic: str) -> None:
    ClusterAdmin(destination).deny_writes(topic)
    wide = acl(topic, operation="ANY", permission="ANY", principal="User:*")

    with pytest.raises(LinkEngineError, match="read-only") as refused:
        browsing.delete_acls(destination, wide, guarded=[topic])

    assert refused.value.code is ErrorCode.ILLEGAL_STATE
    assert ClusterAdmin(destination).denies_writes(topic)
    assert browsing.delete_acls(destination, wide, guarded=["another"])


def test_groups_have_members_and_lags(
    destination: ClusterAddress, destination_cluster: KafkaCluster, destination_admin: AdminClient, topic: str
) -> None:
    producer = Producer(destination_cluster.client("admin"))
    for number in range(10):
        producer.produce(topic, str(number), partition=0)
    producer.flush(30)
    group = f"group-of-{topic}"
    consumer = Consumer({**destination_cluster.client("admin"), "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)

    resting = browsing.show_group(destination, group)
    lags = browsing.group_lags(destination, group)
    consumer.close()

    assert resting is not None
    assert (resting.state, resting.type, resting.members) == ("EMPTY", "CLASSIC", ())
    assert lags is not None
    assert [(lag.partition, lag.current_offset, lag.log_end_offset, lag.lag) for lag in lags] == [(0, 4, 10, 6)]
    assert group in [view.group_id for view in browsing.list_groups(destination).groups]
    destination_admin.delete_consumer_groups([group])[group].result(30)


def test_a_missing_group_is_none(destination: ClusterAddress) -> None:
    assert browsing.show_group(destination, "nobody") is None
    assert browsing.group_lags(destination, "nobody") is None


def test_brokers_have_an_address_configs_and_replicas(destination: ClusterAddress, topic: str) -> None:
    (broker,) = browsing.list_brokers(destination)
    assert f"{broker.host}:{broker.port}" in destination.bootstrap_servers

    configs = {view.name: view for view in browsing.broker_configs(destination, broker.broker)}
    assert configs["node.id"].value == str(broker.broker)
    assert configs["node.id"].source == "STATIC_BROKER_CONFIG"
    assert {view.source for view in browsing.broker_configs(destination)} <= {FOR_ALL}
    held = [replica for replica in browsing.broker_replicas(destination, broker.broker) if replica.topic == topic]
    assert [(replica.partition, replica.leader, replica.in_sync) for replica in held] == [(0, True, True), (1, True, True)]


def test_no_partition_is_being_reassigned(destination: ClusterAddress, topic: str) -> None:
    assert browsing.list_reassignments(destination) == []
    assert browsing.list_reassignments(destination, topic) == []
    with pytest.raises(LinkEngineError) as missing:
        browsing.list_reassignments(destination, "no-such-topic")
    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR
