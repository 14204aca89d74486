from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock, call

import pytest

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
from linkengine.sync.topics import find_mirror, follow_partitions, observe_sources

pytestmark = pytest.mark.kafka


def test_a_source_topic_that_is_still_the_same_is_described(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=2)
    topic = there.describe(topic_name)

    assert observe_sources(there, {topic_name: topic.topic_id}) == {topic_name: topic}


def test_a_deleted_source_topic_is_declared_dead_after_a_second_look(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)
    topic_id = there.describe(topic_name).topic_id
    there.delete_topic(topic_name)

    dead = observe_sources(there, {topic_name: topic_id}, second_look_after_s=0.2)[topic_name]

    assert isinstance(dead, LinkEngineError)
    assert dead.code is ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED


def test_a_source_topic_created_again_is_another_topic(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)
    topic_id = there.describe(topic_name).topic_id
    there.delete_topic(topic_name)
    there.create_topic(topic_name, partitions=1)

    dead = observe_sources(there, {topic_name: topic_id}, second_look_after_s=0.0)[topic_name]

    assert isinstance(dead, LinkEngineError)
    assert dead.code is ErrorCode.SOURCE_TOPIC_ID_CHANGED
    assert topic_id in dead.message


def test_a_topic_missing_for_a_moment_only_is_not_declared_dead(there: ClusterAdmin, topic_name: str) -> None:
    there.create_topic(topic_name, partitions=1)
    topic_id = there.describe(topic_name).topic_id

    class SlowBroker:
        """A broker whose metadata is old at the first look."""

        looks = 0

        def topics(self, names: list[str], *, with_configs: bool) -> Sequence[object]:
            self.looks += 1
            return there.topics(names, with_configs=with_configs) if self.looks > 1 else []

        def missing_among(self, names: list[str]) -> frozenset[str]:
            return there.missing_among(names)

    seen = observe_sources(SlowBroker(), {topic_name: topic_id}, second_look_after_s=0.0)  # type: ignore[arg-type]

    assert seen == {topic_name: there.describe(topic_name)}


def test_topics_that_are_missing_are_looked_at_again_all_together(
    there: ClusterAdmin, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, each waits for itself; a link whose source was cleared would follow nothing for minutes."""
    there.create_topic(topic_name, partitions=1)
    wanted = {f"{topic_name}-{number}": "id" for number in range(100)}
    alone = Mock(wraps=there.find)
    monkeypatch.setattr(there, "find", alone)

    seen = observe_sources(there, {**wanted, topic_name: "another id"}, second_look_after_s=0.0)

    codes = {name: one.code for name, one in seen.items() if isinstance(one, LinkEngineError)}
    gone = dict.fromkeys(wanted, ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED)
    assert codes == {**gone, topic_name: ErrorCode.SOURCE_TOPIC_ID_CHANGED}
    assert alone.call_args_list == [call(topic_name)]


def test_a_mirror_grows_with_its_source(here: ClusterAdmin, topic_name: str) -> None:
    here.create_topic(topic_name, partitions=1)

    assert follow_partitions(here, topic_name, partitions=3, recount=lambda: 3) == 3
    assert here.describe(topic_name).partitions == 3
    assert follow_partitions(here, topic_name, partitions=3, recount=lambda: 3) == 3


def test_a_mirror_with_more_partitions_than_its_source_has_failed(here: ClusterAdmin, topic_name: str) -> None:
    here.create_topic(topic_name, partitions=3)

    with pytest.raises(LinkEngineError) as failed:
        follow_partitions(here, topic_name, partitions=2, recount=lambda: 2)

    assert failed.value.code is ErrorCode.SOURCE_PARTITIONS_DECREASED


def test_a_mirror_that_somebody_deleted_is_missed(here: ClusterAdmin, topic_name: str) -> None:
    with pytest.raises(LinkEngineError) as missed:
        follow_partitions(here, topic_name, partitions=2, recount=lambda: 2)

    assert missed.value.code is ErrorCode.MIRROR_TOPIC_MISSING


def test_a_mirror_is_not_missed_while_a_broker_is_silent_that_may_know_it(
    here: ClusterAdmin, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none, a stop has nothing to fence."""
    assert find_mirror(here, topic_name, topic_id="gone", second_look_after_s=0.0) is None
    survey = Cluster.survey
    monkeypatch.setattr(Cluster, "survey", lambda *names: replace(survey(*names), complete=False))

    with pytest.raises(LinkEngineError, match="Not every broker of the cluster responds") as unsure:
        find_mirror(here, topic_name, topic_id="gone", second_look_after_s=0.0)

    assert unsure.value.code is ErrorCode.TIMEOUT_ERROR
