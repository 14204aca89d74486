import os
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.admin_session import ClientPool, LocalCode, kafka_error

pytestmark = pytest.mark.kafka
SEND_TIMEOUT_S = 60.0


def send(cluster: KafkaCluster, topic: str, *, user: str, count: int = 1, transaction: str = "") -> KafkaError | None:
    """Produce ``count`` records and return the first error; with ``transaction``, leave it open."""
    refusals: list[KafkaError | None] = []
    settings = {"transactional.id": transaction} if transaction else {}
    producer = Producer({**cluster.client(user), **settings})
    if transaction:
        producer.init_transactions(SEND_TIMEOUT_S)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"v", str(number), partition=0, on_delivery=lambda error, _: refusals.append(error))
    producer.flush(SEND_TIMEOUT_S)
    return next(error for error in [*[refusal for refusal in refusals if refusal], None])


def test_a_probe_returns_cluster_id_brokers_authorizer_and_version(there: ClusterAdmin, source_cluster: KafkaCluster) -> None:
    probe = there.probe()

    assert probe.cluster_id == source_cluster.cluster_id
    assert (probe.brokers, probe.authorizer) == (1, True)
    assert probe.kafka_version.startswith("4.")


def test_a_cluster_without_an_authorizer_is_detected_and_cannot_guard_topics(make_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = make_cluster(security="PLAINTEXT")
    admin = ClusterAdmin(address_from_properties(cluster.client_properties("link")))

    assert not admin.probe().authorizer
    with pytest.raises(LinkEngineError) as refused:
        admin.deny_writes("orders")
    assert refused.value.code is ErrorCode.SECURITY_DISABLED_ERROR
    admin.allow_writes("orders")
    assert not admin.denies_writes("orders")
    with pytest.raises(LinkEngineError) as unseen:
        admin.acls()
    assert unseen.value.code is ErrorCode.SECURITY_DISABLED_ERROR


def test_a_topic_is_created_changed_and_deleted(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=2, configs={"retention.ms": "5000"})
    created = there.describe(topic_name)
    there.add_partitions(topic_name, total=3)
    there.change_configs(topic_name, ConfigChange(values={"segment.ms": "7000"}, deletions=("retention.ms", "flush.ms")))
    changed = there.describe(topic_name)

    assert (created.name, created.partitions, created.replication_factor, created.internal) == (topic_name, 2, 1, False)
    assert created.configs == {"retention.ms": "5000"}
    assert changed.topic_id == created.topic_id
    assert (changed.partitions, changed.configs) == (3, {"segment.ms": "7000"})
    assert there.delete_topic(topic_name)
    assert there.find(topic_name) is None
    assert not there.delete_topic(topic_name)


def test_topic_ids_are_written_as_kafka_writes_them(there: ClusterAdmin, topic_name: str) -> None:
    names = [f"{topic_name}-{number}" for number in range(12)]  # about a third of all ids have a differing character
    for name in names:
        there.create_topic(name, partitions=1)

    ids = [topic.topic_id for topic in there.topics(names)]

    assert len(set(ids)) == len(names)
    assert all(len(topic_id) == 22 and not set(topic_id) & set("+/=") for topic_id in ids)


def test_all_topics_are_listed_with_their_own_configs_only(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1, configs={"cleanup.policy": "compact"})

    listed = {topic.name: topic for topic in there.topics()}
    bare = {topic.name: topic for topic in there.topics(with_configs=False)}

    assert listed[topic_name].configs == {"cleanup.policy": "compact"}
    assert bare[topic_name].configs == {}
    assert there.effective_configs(topic_name)["max.message.bytes"] == "1048588"


def test_waiting_for_a_topic_ends_when_it_appears_and_is_bounded(there: ClusterAdmin, topic_name: str) -> None:
    with pytest.raises(LinkEngineError, match="no leader"):
        there.wait_ready(topic_name, partitions=1, timeout_s=0.2)

    later = threading.Timer(0.3, lambda: there.create_topic(topic_name, partitions=1))
    later.start()
    there.wait_ready(topic_name, partitions=1)
    later.join()


def test_offsets_of_new_partitions_are_returned(there: ClusterAdmin, topic_name: str) -> None:
    assert there.many_offsets([(topic_name, 0)], OffsetKind.END) == {}

    there.create_topic(topic_name, partitions=1)
    created = there.offsets(topic_name, OffsetKind.END)
    there.add_partitions(topic_name, total=3)

    assert created == {0: 0}
    assert there.offsets(topic_name, OffsetKind.END) == {0: 0, 1: 0, 2: 0}


def test_missing_topics_are_left_out_of_lists_and_raise_when_described(there: ClusterAdmin) -> None:
    assert there.topics(["no-such-topic"]) == []
    with pytest.raises(LinkEngineError, match="no-such-topic") as refused:
        there.describe("no-such-topic")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"partitions": 1, "configs": {"no.such.config": "1"}}, ErrorCode.INVALID_REQUEST_ERROR),
        ({"partitions": 1, "configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_REQUEST_ERROR),
        ({"partitions": 1, "replication_factor": 3}, ErrorCode.INVALID_REQUEST_ERROR),
    ],
)
def test_a_refused_topic_creation_raises_with_the_brokers_reason(
    there: ClusterAdmin, topic_name: str, arguments: dict[str, object], code: ErrorCode
) -> None:
    with pytest.raises(LinkEngineError, match=f"Failed to create topic '{topic_name}': ") as refused:
        there.create_topic(topic_name, **arguments)  # type: ignore[arg-type]

    assert refused.value.code is code


def test_an_existing_topic_is_not_created_again(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)

    with pytest.raises(LinkEngineError, match="already exists") as refused:
        there.create_topic(topic_name, partitions=1)

    assert refused.value.code is ErrorCode.TOPIC_EXISTS_ERROR


def test_a_topic_name_that_kafka_refuses_is_INVALID_TOPIC(there: ClusterAdmin) -> None:
    with pytest.raises(LinkEngineError) as refused:
        there.create_topic("no/topic", partitions=1)

    assert refused.value.code is ErrorCode.INVALID_TOPIC


def test_missing_rights_are_an_authorization_error(
    here: ClusterAdmin, destination_as_app: ClusterAddress, topic_name: str
) -> None:
    here.create_topic(topic_name, partitions=1)

    with pytest.raises(LinkEngineError, match="ACL") as refused:
        ClusterAdmin(destination_as_app).delete_topic(topic_name)

    assert refused.value.code is ErrorCode.AUTHORIZATION_ERROR


def test_deny_writes_refuses_ordinary_clients_but_not_the_links_principal(
    here: ClusterAdmin, destination_as_app: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    here.deny_writes(topic_name)  # before the topic exists
    here.deny_writes(topic_name)
    here.create_topic(topic_name, partitions=1)

    refused = send(destination_cluster, topic_name, user="app")

    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert here.denies_writes(topic_name)
    assert "WRITE" not in ClusterAdmin(destination_as_app).rights(topic_name)
    assert "WRITE" in here.rights(topic_name)
    assert send(destination_cluster, topic_name, user="link") is None

    here.allow_writes(topic_name)
    here.allow_writes(topic_name)

    assert not here.denies_writes(topic_name)
    assert send(destination_cluster, topic_name, user="app") is None


def test_deny_reads_and_deny_writes_are_independent(
    here: ClusterAdmin, destination_as_app: ClusterAddress, topic_name: str
) -> None:
    here.create_topic(topic_name, partitions=1)
    here.deny_writes(topic_name)
    here.deny_reads(topic_name)

    assert "READ" not in ClusterAdmin(destination_as_app).rights(topic_name)
    here.allow_reads(topic_name)
    assert "READ" in ClusterAdmin(destination_as_app).rights(topic_name)
    assert not here.denies_reads(topic_name)
    assert here.denies_writes(topic_name)


def test_offsets_are_log_start_high_watermark_and_last_stable_offset(
    there: ClusterAdmin, source_cluster: KafkaCluster, topic_name: str
) -> None:
    there.create_topic(topic_name, partitions=2)
    assert send(source_cluster, topic_name, user="app", count=5) is None
    there.trim(topic_name, {0: 2})
    assert send(source_cluster, topic_name, user="app", count=3, transaction=topic_name) is None

    assert there.offsets(topic_name, OffsetKind.START) == {0: 2, 1: 0}
    assert there.offsets(topic_name, OffsetKind.STABLE_END) == {0: 5, 1: 0}
    assert there.offsets(topic_name, OffsetKind.END) == {0: 8, 1: 0}


def test_a_missing_partition_has_no_offset(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)

    assert there.many_offsets([(topic_name, 0), (topic_name, 9), ("no-such-topic", 0)], OffsetKind.END) == {(topic_name, 0): 0}
    with pytest.raises(LinkEngineError, match="Partition 1 "):
        there.offsets(topic_name, OffsetKind.END, partitions=2)


def test_a_cluster_that_is_down_raises_and_works_again_after_its_restart(make_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = make_cluster()
    admin = ClusterAdmin(address_from_properties(cluster.client_properties("link")))
    admin.create_topic("orders", partitions=1)
    cluster.kill()

    with pytest.raises(LinkEngineError) as first:
        admin.describe("orders")
    with pytest.raises(LinkEngineError) as second:
        admin.topics()

    assert {first.value.code, second.value.code} == {ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR}
    cluster.restart()
    assert admin.describe("orders").partitions == 1


def test_the_pool_drops_the_least_recently_used_client(source: ClusterAddress) -> None:
    pool = ClientPool(size=2)
    others = [replace(source, ssl_key_password=str(number)) for number in range(2)]  # unused without TLS: the same cluster

    first = pool.take(source)
    assert pool.take(source) is first
    pool.take(others[0])
    pool.take(others[1])

    assert pool.take(source) is not first


def test_an_idle_client_is_dropped(source: ClusterAddress) -> None:
    pool = ClientPool(idle_s=0.0)

    assert pool.take(source) is not pool.take(source)


def test_a_forked_worker_creates_its_own_client(source: ClusterAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ClientPool()
    first = pool.take(source)
    own = os.getpid()

    monkeypatch.setattr(os, "getpid", lambda: own + 1)

    assert pool.take(source) is not first


@pytest.mark.parametrize("code", LocalCode)
def test_local_codes_match_librdkafkas_own_errors(code: LocalCode) -> None:
    assert getattr(KafkaError, f"_{code.name}") == code
    assert KafkaException(KafkaError(code)).args[0].code() == code


def test_a_broker_destroyed_during_a_request_is_a_retriable_error() -> None:
    error = kafka_error(KafkaError(LocalCode.DESTROY_BROKER), what="describe topic 'orders'")

    assert error.code is ErrorCode.TIMEOUT_ERROR
    assert error.message.endswith("try again.")
