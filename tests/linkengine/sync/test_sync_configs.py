import pytest

from linkengine.domain.configs import UNLIMITED
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.topics import pending_change, read_source_configs, sync_configs

pytestmark = pytest.mark.kafka


@pytest.fixture
def topics(there: ClusterAdmin, here: ClusterAdmin, topic_name: str) -> str:
    """Create a topic of the same name on both clusters; the source's is compacted."""
    there.create_topic(topic_name, partitions=1, configs={"cleanup.policy": "compact", "delete.retention.ms": "60000"})
    here.create_topic(topic_name, partitions=1, configs={"min.insync.replicas": "1"})
    return topic_name


def test_source_configs_include_the_clusters_defaults(there: ClusterAdmin, topics: str) -> None:
    values = read_source_configs(there, topics)

    assert values["cleanup.policy"] == "compact"
    assert values["retention.ms"] == "604800000"  # the source cluster's default
    assert "min.insync.replicas" not in values


def test_a_sync_run_sets_pending_configs_and_the_next_run_changes_nothing(
    there: ClusterAdmin, here: ClusterAdmin, topics: str
) -> None:
    values = read_source_configs(there, topics)

    changed = sync_configs(here, topics, source_configs=values)

    assert "cleanup.policy" in changed
    assert not pending_change(here, topics, source_configs=values)
    assert sync_configs(here, topics, source_configs=values) == ()


def test_a_synced_mirror_has_the_configs_of_the_copy_and_keeps_its_own(
    there: ClusterAdmin, here: ClusterAdmin, topics: str
) -> None:
    sync_configs(here, topics, source_configs=read_source_configs(there, topics))

    configs = here.describe(topics).configs

    assert configs["cleanup.policy"] == "compact,delete"
    assert configs["delete.retention.ms"] == "60000"
    assert configs["message.timestamp.after.max.ms"] == UNLIMITED
    assert (configs["retention.ms"], configs["compression.type"]) == ("-1", "producer")
    assert configs["min.insync.replicas"] == "1"


def test_a_change_at_the_source_is_pending_until_it_is_synced(there: ClusterAdmin, here: ClusterAdmin, topics: str) -> None:
    sync_configs(here, topics, source_configs=read_source_configs(there, topics))

    there.set_configs(topics, {"min.compaction.lag.ms": "1234"})
    values = read_source_configs(there, topics)

    assert pending_change(here, topics, source_configs=values).values == {"min.compaction.lag.ms": "1234"}
    assert sync_configs(here, topics, source_configs=values) == ("min.compaction.lag.ms",)
    assert here.describe(topics).configs["min.compaction.lag.ms"] == "1234"


def test_a_config_that_is_not_included_stays_the_mirrors_own(there: ClusterAdmin, here: ClusterAdmin, topics: str) -> None:
    here.set_configs(topics, {"retention.ms": "99000"})

    sync_configs(here, topics, source_configs=read_source_configs(there, topics, include=[]), include=[])

    assert here.describe(topics).configs["retention.ms"] == "99000"


def test_the_configs_of_an_unknown_topic_cannot_be_read(there: ClusterAdmin) -> None:
    with pytest.raises(LinkEngineError) as refused:
        read_source_configs(there, "no-such-topic")

    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR
