"""Which of many topics carry their new configs, as a broker tells."""

import pytest

from linkengine.domain.configs import ConfigChange
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicconfigs import not_shown

pytestmark = pytest.mark.kafka


def test_changes_of_many_topics_are_shown_once_they_are_made(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1, configs={"retention.ms": "5000", "cleanup.policy": "compact,delete"})
    set_already = ConfigChange(values={"cleanup.policy": "delete,compact"}, deletions=("flush.ms",))
    to_be_set = ConfigChange(values={"segment.ms": "604800000"})  # the default's value, but not the topic's own
    to_be_deleted = ConfigChange(deletions=("retention.ms",))
    cluster = Cluster(there.address)

    def waiting() -> list[ConfigChange]:
        return [one for one in (set_already, to_be_set, to_be_deleted) if not_shown(cluster, {topic_name: one})]

    try:
        before = waiting()
        change = {topic_name: ConfigChange(values=to_be_set.values, deletions=to_be_deleted.deletions)}
        assert there.alter_each(change) == {}
        there.wait_for_configs(change)
        after = waiting()
        missing = not_shown(cluster, {"no-such-topic": to_be_set})
    finally:
        cluster.close()

    assert before == [to_be_set, to_be_deleted]
    assert after == []
    assert set(missing) == {"no-such-topic"}
    assert there.describe(topic_name).configs == {"segment.ms": "604800000", "cleanup.policy": "compact,delete"}
