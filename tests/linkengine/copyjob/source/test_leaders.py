"""The source topic's id when brokers disagree or do not respond; with metadata views, without brokers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.source.leaders import locate_sources
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.topicviews import Leader, Survey, TopicMetadata
from tests.linkengine.copyjob.partitions import partition

FORMER, OTHER = bytes(range(16)), bytes(range(16, 32))


def text_of(topic_id: bytes) -> str:
    return TopicMetadata(topic_id=topic_id, partitions={}).topic_id_text


@pytest.mark.parametrize(
    ("complete", "unlisted_may_be_majority", "known", "code"),
    [
        (True, False, {OTHER}, ErrorCode.SOURCE_TOPIC_ID_CHANGED),
        (False, False, {OTHER}, ErrorCode.TIMEOUT_ERROR),
        (True, True, {OTHER}, ErrorCode.TIMEOUT_ERROR),
        (True, False, {OTHER, FORMER}, ErrorCode.TIMEOUT_ERROR),
    ],
)
def test_source_topic_counts_as_recreated_only_if_all_brokers_agree(
    complete: bool, unlisted_may_be_majority: bool, known: set[bytes], code: ErrorCode
) -> None:
    assignment = partition().assignment
    assignment = replace(assignment, source_topic_id=text_of(FORMER))
    view = TopicMetadata(topic_id=OTHER, partitions={assignment.partition: Leader(broker=1, epoch=3)})
    name = assignment.source_topic
    survey = Survey(
        topics={name: view},
        complete=complete,
        unlisted_brokers=set(),
        topic_ids={name: frozenset(text_of(topic_id) for topic_id in known)},
        unlisted_may_be_majority=unlisted_may_be_majority,
    )
    cluster: Any = SimpleNamespace(survey=lambda _: survey)

    found = locate_sources(cluster, [assignment])[assignment.key]

    assert isinstance(found, LinkEngineError)
    assert found.code == code
