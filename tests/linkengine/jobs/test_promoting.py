from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorSync
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.jobs.probes import Blocker
from linkengine.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.kafka
Send = Callable[..., None]
Blockers = Callable[..., list[Blocker]]


@pytest.fixture
def blockers(setup_plan: MirrorSetup, assignments: AssignmentsFactory, source_topic: str) -> Blockers:
    """Set up a mirror with two empty partitions and return a function that returns its blockers."""
    jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    return partial(
        jobs.promotion_blockers,
        source=setup_plan.source,
        destination=setup_plan.destination,
        source_topic=source_topic,
        mirror_topic=source_topic,
    )


def test_a_mirror_that_equals_its_source_has_no_blockers(
    blockers: Blockers, source_topic: str, send_there: Send, send_here: Send
) -> None:
    assert blockers() == []

    send_there(source_topic, count=3)
    send_here(source_topic, count=3)

    assert blockers() == []


def test_lag_is_a_blocker_with_its_size_and_the_worst_partitions(
    blockers: Blockers, source_topic: str, send_there: Send
) -> None:
    send_there(source_topic, partition=0, count=2)
    send_there(source_topic, partition=1, count=5)

    [(code, message)] = blockers()

    assert code is ErrorCode.WAITING_FOR_LAG
    assert message.startswith("7 offsets")
    assert "partition 1: 5, partition 0: 2" in message


def test_a_mirror_ahead_of_its_source_is_not_promoted(blockers: Blockers, source_topic: str, send_here: Send) -> None:
    send_here(source_topic, count=1)

    [(code, message)] = blockers()

    assert code is ErrorCode.UNEXPECTED_TRUNCATION
    assert "partition 0" in message


def test_an_open_transaction_is_a_blocker(blockers: Blockers, source_topic: str, source_cluster: KafkaCluster) -> None:
    producer = Producer({**source_cluster.client("app"), "transactional.id": source_topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(source_topic, b"v", partition=1)
    producer.flush(60)

    [(code, message)] = blockers()
    producer.abort_transaction(60)

    assert code is ErrorCode.WAITING_FOR_LAG
    assert "transaction is still open" in message


def test_missing_partitions_are_a_blocker(
    blockers: Blockers, setup_plan: MirrorSetup, there: ClusterAdmin, source_topic: str
) -> None:
    there.add_partitions(source_topic, total=3)

    [(code, _)] = blockers()
    jobs.sync_mirror(mirror_sync(setup_plan, there))

    assert code is ErrorCode.WAITING_FOR_PARTITIONS
    assert blockers() == []


def test_different_configs_are_a_blocker_with_their_names(
    blockers: Blockers, setup_plan: MirrorSetup, there: ClusterAdmin, source_topic: str
) -> None:
    there.set_configs(source_topic, {"delete.retention.ms": "12345"})

    [(code, message)] = blockers()
    synced = jobs.sync_mirror(mirror_sync(setup_plan, there))

    assert code is ErrorCode.WAITING_FOR_CONFIGS
    assert "delete.retention.ms" in message
    assert synced.changed == ("delete.retention.ms",)
    assert blockers() == []


def test_a_config_that_is_not_synced_is_not_a_blocker(blockers: Blockers, there: ClusterAdmin, source_topic: str) -> None:
    there.set_configs(source_topic, {"delete.retention.ms": "12345"})

    assert blockers(sync_include=("retention.ms", "retention.bytes")) == []


def test_refused_credentials_are_a_blocker_with_the_documented_message(blockers: Blockers, source: ClusterAddress) -> None:
    [(code, message)] = blockers(source=replace(source, sasl_password="wrong"))

    assert code is ErrorCode.AUTHENTICATION_ERROR
    assert message.startswith("Failed to describe topic")
    assert "due to authentication issues" in message


def test_an_unreachable_source_is_a_blocker(blockers: Blockers, source: ClusterAddress) -> None:
    down = replace(source, bootstrap_servers=f"127.0.0.1:{free_port()}")

    [(code, _)] = blockers(source=down)

    assert code is ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR


def test_a_missing_topic_on_either_side_is_a_blocker(blockers: Blockers) -> None:
    assert [code for code, _ in blockers(source_topic="no-such-topic")] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR]
    assert [code for code, _ in blockers(mirror_topic="no-such-topic")] == [ErrorCode.MIRROR_TOPIC_MISSING]


def mirror_sync(setup: MirrorSetup, there: ClusterAdmin) -> MirrorSync:
    return MirrorSync(
        source=setup.source,
        destination=setup.destination,
        source_topic=setup.source_topic,
        source_topic_id=there.describe(setup.source_topic).topic_id,
        mirror_topic=setup.mirror_topic,
    )
