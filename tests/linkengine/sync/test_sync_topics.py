from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock, call

import pytest

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
from linkengine.sync.topics import find_mirror, follow_partitions, observe_sources

pytestmark = pytest.mark.kafka


def test_an_unchanged_source_topic_is_described(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=2)
    topic = there.describe(topic_name)

    assert observe_sources(there, {topic_name: topic.topic_id}) == {topic_name: topic}


def test_a_deleted_source_topic_is_reported_as_missing_after_a_second_read(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)
    topic_id = there.describe(topic_name).topic_id
    there.delete_topic(topic_name)

    error = observe_sources(there, {topic_name: topic_id}, reread_after_s=0.2)[topic_name]

    assert isinstance(error, LinkEngineError)
    assert error.code is ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED


def test_a_recreated_source_topic_has_another_id(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)
    topic_id = there.describe(topic_name).topic_id
    there.delete_topic(topic_name)
    there.create_topic(topic_name, partitions=1)

    error = observe_sources(there, {topic_name: topic_id}, reread_after_s=0.0)[topic_name]

    assert isinstance(error, LinkEngineError)
    assert error.code is ErrorCode.SOURCE_TOPIC_ID_CHANGED
    assert topic_id in error.message


def test_a_topic_that_is_missing_only_in_the_first_read_is_described(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)
    topic_id = there.describe(topic_name).topic_id

    class SlowBroker:
        """A broker whose metadata is stale at the first read."""

        reads = 0

        def topics(self, names: list[str], *, with_configs: bool) -> Sequence[object]:
            self.reads += 1
            return there.topics(names, with_configs=with_configs) if self.reads > 1 else []

        def missing_among(self, names: list[str]) -> frozenset[str]:
            return there.missing_among(names)

    seen = observe_sources(SlowBroker(), {topic_name: topic_id}, reread_after_s=0.0)  # type: ignore[arg-type]

    assert seen == {topic_name: there.describe(topic_name)}


def test_missing_topics_are_read_a_second_time_together(
    there: ClusterAdmin, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Singly, each would wait on its own, and a link whose source was cleared would be stuck for minutes."""
    there.create_topic(topic_name, partitions=1)
    wanted = {f"{topic_name}-{number}": "id" for number in range(100)}
    alone = Mock(wraps=there.find)
    monkeypatch.setattr(there, "find", alone)

    seen = observe_sources(there, {**wanted, topic_name: "another id"}, reread_after_s=0.0)

    codes = {name: found.code for name, found in seen.items() if isinstance(found, LinkEngineError)}
    gone = dict.fromkeys(wanted, ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED)
    assert codes == {**gone, topic_name: ErrorCode.SOURCE_TOPIC_ID_CHANGED}
    assert alone.call_args_list == [call(topic_name)]


def test_a_mirror_grows_with_its_source(here: ClusterAdmin, topic_name: str) -> None:
    here.create_topic(topic_name, partitions=1)

    assert follow_partitions(here, topic_name, partitions=3, recount=lambda: 3) == 3
    assert here.describe(topic_name).partitions == 3
    assert follow_partitions(here, topic_name, partitions=3, recount=lambda: 3) == 3


def test_a_mirror_with_more_partitions_than_its_source_fails(here: ClusterAdmin, topic_name: str) -> None:
    here.create_topic(topic_name, partitions=3)

    with pytest.raises(LinkEngineError) as failed:
        follow_partitions(here, topic_name, partitions=2, recount=lambda: 2)

    assert failed.value.code is ErrorCode.SOURCE_PARTITIONS_DECREASED


def test_a_deleted_mirror_topic_is_reported_as_missing(here: ClusterAdmin, topic_name: str) -> None:
    with pytest.raises(LinkEngineError) as raised:
        follow_partitions(here, topic_name, partitions=2, recount=lambda: 2)

    assert raised.value.code is ErrorCode.MIRROR_TOPIC_MISSING


def test_a_mirror_is_not_missing_while_a_silent_broker_may_know_it(
    here: ClusterAdmin, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing mirror would mean that a stop has nothing to fence."""
    assert find_mirror(here, topic_name, topic_id="gone", reread_after_s=0.0) is None
    survey = Cluster.survey
    monkeypatch.setattr(Cluster, "survey", lambda *names: replace(survey(*names), complete=False))

    with pytest.raises(LinkEngineError, match="Not every broker of the cluster responds") as unsure:
        find_mirror(here, topic_name, topic_id="gone", reread_after_s=0.0)

    assert unsure.value.code is ErrorCode.TIMEOUT_ERROR
