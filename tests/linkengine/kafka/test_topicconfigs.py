"""Detection of topics that show their new configs, on a real broker."""

import pytest

from linkengine.domain.configs import ConfigChange
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.admin_topics import not_shown
from linkengine.kafka.cluster import Cluster

pytestmark = pytest.mark.kafka


def test_changed_configs_are_shown_after_the_change(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1, configs={"retention.ms": "5000", "cleanup.policy": "compact,delete"})
    set_already = ConfigChange(values={"cleanup.policy": "delete,compact"}, deletions=("flush.ms",))
    to_be_set = ConfigChange(values={"segment.ms": "604800000"})  # equals the default, but is not set on the topic
    to_be_deleted = ConfigChange(deletions=("retention.ms",))
    cluster = Cluster(there.address)

    def waiting() -> list[ConfigChange]:
        return [change for change in (set_already, to_be_set, to_be_deleted) if not_shown(cluster, {topic_name: change})]

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
