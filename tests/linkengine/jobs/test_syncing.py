from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

from devcluster.access import create_acls
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.configs import ConfigChange, LocalEdit
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorSync, MirrorSynced
from linkengine.domain.plans import TopicDescription
from linkengine.jobs import syncing
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.kafka


@pytest.fixture
def mirror(setup_plan: MirrorSetup, assignments: AssignmentsFactory, source_topic: str) -> MirrorSync:
    """A mirror that was just set up."""
    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    return MirrorSync(
        source=setup_plan.source,
        destination=setup_plan.destination,
        source_topic=source_topic,
        source_topic_id=created.source_topic_id,
        mirror_topic=source_topic,
    )


def test_partitions_and_configs_of_the_source_are_applied_to_the_mirror(
    mirror: MirrorSync, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    there.add_partitions(mirror.source_topic, total=4)
    there.set_configs(mirror.source_topic, {"cleanup.policy": "compact", "retention.ms": "5000"})

    synced = jobs.sync_mirror(mirror)

    assert (synced.partitions, synced.changed) == (4, ("cleanup.policy",))
    assert (synced.source_configs["cleanup.policy"], synced.source_configs["retention.ms"]) == ("compact", "5000")
    assert here.describe(mirror.mirror_topic).partitions == 4
    assert here.describe(mirror.mirror_topic).configs["cleanup.policy"] == "compact,delete"


def test_a_mirror_gets_the_partitions_of_a_source_whose_configs_may_not_be_read(
    mirror: MirrorSync, there: ClusterAdmin, here: ClusterAdmin, source_cluster: KafkaCluster
) -> None:
    known = jobs.sync_mirror(mirror).source_configs
    user = (ResourceType.TOPIC, mirror.source_topic, ResourcePatternType.LITERAL, "User:app", "*")
    unreadable = AclBinding(*user, AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)
    create_acls(AdminClient(source_cluster.client("admin")), [unreadable])
    there.add_partitions(mirror.source_topic, total=4)
    as_app = address_from_properties(source_cluster.client_properties("app"))

    (outcome,) = jobs.sync_mirrors([replace(mirror, source=as_app, previous=known)])

    assert here.describe(mirror.mirror_topic).partitions == 4
    assert isinstance(outcome, MirrorSynced)
    assert (outcome.partitions, outcome.source_configs, outcome.read, outcome.changed) == (4, known, False, ())
    assert outcome.configs_error is not None
    assert outcome.configs_error.code is ErrorCode.AUTHORIZATION_ERROR
    with pytest.raises(LinkEngineError, match="may not read the configs"):
        jobs.sync_mirror(replace(mirror, source=as_app, previous=known))


def test_a_second_run_changes_nothing(mirror: MirrorSync) -> None:
    assert jobs.sync_mirror(mirror) == replace(jobs.sync_mirror(mirror), changed=())


def test_a_config_removed_at_the_source_is_reset_and_a_local_edit_is_reverted_and_reported(
    mirror: MirrorSync, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    there.set_configs(mirror.source_topic, {"delete.retention.ms": "5000"})
    first = jobs.sync_mirror(mirror)
    there.change_configs(mirror.source_topic, ConfigChange(deletions=("delete.retention.ms",)))
    here.set_configs(mirror.mirror_topic, {"retention.ms": "1000", "min.insync.replicas": "1"})

    second = jobs.sync_mirror(replace(mirror, previous=first.source_configs))

    assert second.changed == ("delete.retention.ms", "retention.ms")
    assert second.reverted == (LocalEdit(name="retention.ms", found="1000", restored="-1"),)
    configs = here.describe(mirror.mirror_topic).configs
    assert (configs["delete.retention.ms"], configs["retention.ms"]) == ("86400000", "-1")
    assert configs["min.insync.replicas"] == "1"  # is not synced, so a local change stays


def test_a_retention_removed_from_the_include_list_becomes_the_mirrors_own(mirror: MirrorSync, here: ClusterAdmin) -> None:
    first = jobs.sync_mirror(mirror)
    own = replace(
        mirror, previous=first.source_configs, sync_include=("min.compaction.lag.ms",), configs={"retention.ms": "7200000"}
    )

    second = jobs.sync_mirror(own)

    configs = here.describe(mirror.mirror_topic).configs
    assert configs["retention.ms"] == "7200000"
    assert "retention.bytes" not in configs
    assert second.reverted == ()
    assert jobs.sync_mirror(replace(own, previous=second.source_configs)).changed == ()


def test_many_mirrors_are_synced_in_one_run_and_a_missing_source_does_not_stop_others(
    mirror: MirrorSync, there: ClusterAdmin
) -> None:
    gone = replace(mirror, source_topic=f"{mirror.source_topic}.gone")
    there.set_configs(mirror.source_topic, {"max.compaction.lag.ms": "777777"})

    outcomes = jobs.sync_mirrors([gone, mirror])

    assert isinstance(outcomes[0], LinkEngineError)
    assert outcomes[0].code is ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED
    assert isinstance(outcomes[1], MirrorSynced)
    assert outcomes[1].changed == ("max.compaction.lag.ms",)


def test_a_deleted_source_topic_and_a_deleted_mirror_are_permanent_errors(
    mirror: MirrorSync, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    here.delete_topic(mirror.mirror_topic)
    with pytest.raises(LinkEngineError) as missing:
        jobs.sync_mirror(mirror)
    there.delete_topic(mirror.source_topic)
    with pytest.raises(LinkEngineError) as deleted:
        jobs.sync_mirror(mirror)

    assert missing.value.code is ErrorCode.MIRROR_TOPIC_MISSING
    assert deleted.value.code is ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED


def test_a_mirror_that_was_stopped_since_it_was_read_is_not_changed(
    mirror: MirrorSync, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    there.add_partitions(mirror.source_topic, total=4)
    here.set_configs(mirror.mirror_topic, {"retention.ms": "60000"})
    called: list[str] = []

    def stopped(name: str) -> bool:
        called.append(name)
        return False

    synced = jobs.sync_mirror(mirror, still_mirrors=stopped)

    assert called == [mirror.mirror_topic]
    assert (synced.changed, synced.reverted, synced.source_configs) == ((), (), mirror.previous)
    found = here.describe(mirror.mirror_topic)
    assert (found.partitions, found.configs["retention.ms"]) == (synced.partitions, "60000")


def test_a_topic_created_in_place_of_the_mirror_is_left_alone(mirror: MirrorSync, here: ClusterAdmin) -> None:
    known = replace(mirror, mirror_topic_id=here.describe(mirror.mirror_topic).topic_id)
    here.delete_topic(mirror.mirror_topic)
    here.create_topic(mirror.mirror_topic, partitions=1, configs={"retention.ms": "60000"})

    with pytest.raises(LinkEngineError, match="A new topic of the same name is left as it is") as replaced:
        jobs.sync_mirror(known)

    assert replaced.value.code is ErrorCode.MIRROR_TOPIC_MISSING
    found = here.describe(mirror.mirror_topic)
    assert (found.partitions, found.configs["retention.ms"]) == (1, "60000")


def test_a_lower_partition_count_from_a_lagging_broker_is_checked_again(
    mirror: MirrorSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_topics, once = ClusterAdmin.topics, [True]

    def lag(admin: ClusterAdmin, *names: Any, **options: Any) -> list[TopicDescription]:
        found = list_topics(admin, *names, **options)
        behind = admin.address == mirror.source and once and once.pop()
        return [replace(topic, partitions=1) for topic in found] if behind else found

    monkeypatch.setattr(ClusterAdmin, "topics", lag)
    synced = jobs.sync_mirror(mirror)

    assert once == []
    assert (synced.partitions, synced.source_partitions) == (2, 2)


def test_a_mirror_that_one_broker_does_not_show_yet_is_not_missing(
    mirror: MirrorSync, here: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(mirror, mirror_topic_id=here.describe(mirror.mirror_topic).topic_id)
    monkeypatch.setattr(ClusterAdmin, "find", lambda *_: None)
    monkeypatch.setattr(syncing, "observe_sources", lambda admin, wanted: {topic.name: topic for topic in admin.topics(wanted)})
    list_topics = ClusterAdmin.topics
    monkeypatch.setattr(
        ClusterAdmin, "topics", lambda admin, *a, **o: list_topics(admin, *a, **o) if admin.address == mirror.source else []
    )

    for sync in (known, mirror):  # known by its id, or by its configs only
        with pytest.raises(LinkEngineError, match="do not agree on which topic") as unsure:
            jobs.sync_mirror(sync)
        assert unsure.value.code is ErrorCode.TIMEOUT_ERROR


def test_a_former_topic_id_from_one_broker_does_not_mean_that_the_source_was_created_again(
    mirror: MirrorSync, there: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = replace(there.describe(mirror.source_topic), topic_id="former")
    monkeypatch.setattr(ClusterAdmin, "find", lambda *_: former)
    monkeypatch.setattr(ClusterAdmin, "topics", lambda *_, **__: [former])

    with pytest.raises(LinkEngineError, match="do not agree on which topic") as unsure:
        jobs.sync_mirror(mirror)

    assert unsure.value.code is ErrorCode.TIMEOUT_ERROR
