"""The steady writer and the timing reader on a real cluster, where the reader reads what the writer writes."""

from __future__ import annotations

import pytest

from bench.load import create_topics, discard_topics
from bench.steady import Load, TimedReader, writing
from devcluster.kafka import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(290)]


def test_all_records_are_timed_and_a_silent_topic_is_a_gap(source_cluster: KafkaCluster, topic_name: str) -> None:
    written, silent = (f"{topic_name}-0", 0), (f"{topic_name}-1", 0)
    create_topics(source_cluster, [written[0], silent[0]])

    with writing(source_cluster, Load(places=(written,), rate=100, batch=10)) as writer:
        reader = TimedReader(source_cluster, [written, silent], writer=writer)
        reader.places = frozenset({written})
        reader.catch_up()
        alone = reader.take(2.0)
        reader.places = frozenset({written, silent})
        both = reader.take(2.0)
        reader.close()
    discard_topics(source_cluster, [written[0], silent[0]])

    assert alone.records_per_s == pytest.approx(100, rel=0.2)
    assert alone.counts.keys() == {written}
    assert 0 < alone.p50_ms <= alone.p99_ms <= alone.worst_ms < 60_000
    assert both.gaps_s[silent] == pytest.approx(2.0, abs=0.5)
    assert both.gaps_s[written] < both.gaps_s[silent]


def test_a_writer_whose_records_are_refused_ends_the_measurement(source_cluster: KafkaCluster, topic_name: str) -> None:
    create_topics(source_cluster, [topic_name])
    no_such_partition = (topic_name, 7)

    def measure() -> None:
        with writing(source_cluster, Load(places=(no_such_partition,), rate=100)) as writer:
            reader = TimedReader(source_cluster, [(topic_name, 0)], writer=writer)
            try:
                reader.take(60.0)
            finally:
                reader.close()

    with pytest.raises(RuntimeError, match="The writer has ended with status 1"):
        measure()
    discard_topics(source_cluster, [topic_name])
