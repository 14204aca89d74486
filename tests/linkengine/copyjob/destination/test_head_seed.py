"""Mirrors whose source starts above offset 0, on real brokers."""

from typing import Any

import pytest

from linkengine.copyjob.destination import head_seed
from linkengine.copyjob.destination.head_seed import dense_filler, seed_head
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.linkengine.copyjob.copying import (
    Pair,
    address,
    assert_equal_topics,
    assignments_for,
    copy_all,
    create_pair,
    create_topic,
    ends_of,
    producer_for,
    starts_of,
)

START = 1_000_000


def test_log_that_starts_at_offset_one_million_is_mirrored_from_there(clusters: Pair, topic_name: str) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name)
    (assignment,) = assignments_for(source, topic_name, topic_name)
    seed_head(address(source), assignment, start=START)  # the quickest way to a source with such a start
    producer = producer_for(source)
    for number in range(50):
        producer.produce(topic_name, value=f"{number}")
    producer.flush()

    seed_head(address(destination), assignment, start=START)
    (result,) = copy_all(clusters, topic_name)

    assert starts_of(destination, topic_name) == {0: START}
    assert assert_equal_topics(source, topic_name, destination, topic_name) == 50
    assert (result.mirror_start, result.mirror_end, result.records_copied) == (START, START + 50, 50)


def test_seeding_resumes_and_repeats_nothing(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name)
    (assignment,) = assignments_for(source, topic_name, topic_name)

    filled: list[int] = []  # offsets per filler

    def filler(records: int, *args: Any, **rest: Any) -> Any:
        filled.append(records)
        return dense_filler(records, *args, **rest)

    monkeypatch.setattr(head_seed, "dense_filler", filler)
    for start in (1_234, 1_400_000, 1_400_000):
        seed_head(address(destination), assignment, start=start)
        assert starts_of(destination, topic_name) == {0: start}
        assert sum(filled) == start


def test_fillers_are_deleted_while_seeding(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a log that starts at ten billion would need seven gigabytes on each replica until it is seeded."""
    monkeypatch.setattr(head_seed, "TRIM_EVERY", 2)
    source, destination = clusters
    create_pair(clusters, topic_name)
    (assignment,) = assignments_for(source, topic_name, topic_name)
    starts: list[int] = []

    def note() -> None:
        starts.append(starts_of(destination, topic_name)[0])

    seed_head(address(destination), assignment, start=5 * START + 7, check_owner=note)

    assert {0, 2 * START, 4 * START} <= set(starts)
    assert (starts_of(destination, topic_name), ends_of(destination, topic_name)) == ({0: 5 * START + 7}, {0: 5 * START + 7})


def test_no_filler_takes_the_offset_of_a_refused_filler(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of a million empty records has 700 KB and is refused; the next batch, of ten records, would fit."""
    monkeypatch.setattr(head_seed, "PAUSE_S", 0.01)
    source, destination = clusters
    create_topic(source, topic_name)
    create_topic(destination, topic_name, max_message_bytes="100000")
    (assignment,) = assignments_for(source, topic_name, topic_name)

    with pytest.raises(LinkEngineError) as caught:
        seed_head(address(destination), assignment, start=START + 10)

    assert caught.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert ends_of(destination, topic_name) == {0: 0}
