"""Counts the loop's requests on real brokers: idle partitions cost nothing, small batches share requests."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.destination import producer as producer_module
from linkengine.copyjob.destination import side
from linkengine.copyjob.resume.log_end import read_log_ends
from linkengine.copyjob.source import fetcher
from linkengine.copyjob.values import LogEnd, LogEndQuery
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka import requests
from linkengine.kafka.protocol import BrokerError, Bytes, KafkaCode
from linkengine.kafka.requests import FetchPosition, SessionStep
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    assert_equal_topics,
    copy_all,
    create_pair,
    ends_of,
    plan_of,
    producer_for,
    wait_for,
)

PARTITIONS = 60
FAILURES = 4  # of each partition


class Fetches:
    """Records each Fetch request before it is sent; may falsify its session."""

    def __init__(self, *, falsify: Mapping[int, tuple[int, int]] | None = None) -> None:
        self.named: list[int] = []
        self.steps: list[SessionStep] = []
        self._falsify = falsify or {}

    def encode(self, positions: Mapping[bytes, Sequence[FetchPosition]], *, step: SessionStep, **rest: Any) -> list[Bytes]:
        self.named.append(sum(map(len, positions.values())))
        self.steps.append(step)
        session, epoch = self._falsify.get(len(self.steps), (0, 0))
        return requests.encode_fetch(positions, step=SessionStep(step.session + session, step.epoch + epoch), **rest)


def test_idle_partitions_are_named_once_and_then_cost_nothing(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = Fetches()
    monkeypatch.setattr(fetcher, "encode_fetch", fetches.encode)
    create_pair(clusters, topic_name, partitions=PARTITIONS)
    # A broker lists a new topic's leaders before their logs exist. Until then it refuses a Fetch with NOT_LEADER_OR_FOLLOWER,
    # and the copy worker must locate and name these partitions again. ListOffsets is served from the logs.
    assert ends_of(clusters[0], topic_name, partitions=PARTITIONS) == dict.fromkeys(range(PARTITIONS), 0)
    producer = producer_for(clusters[0])

    with Copier(plan_of(clusters, topic_name, partitions=PARTITIONS)) as copier:
        copier.wait_for_ends(dict.fromkeys(range(PARTITIONS), 0))
        wait_for(lambda: sum(fetches.named) >= PARTITIONS)
        settled = sum(fetches.named)
        for number in range(20):
            producer.produce(topic_name, value=b"%d" % number, partition=7)
            producer.flush()
        copier.wait_for_ends(dict.fromkeys(range(PARTITIONS), 0) | {7: 20})

    assert sum(fetches.named) - settled <= 20  # a position per response, none for the other partitions
    assert len(fetches.named) >= 2


@pytest.mark.parametrize("falsify", [(0, 7), (1, 0)], ids=["wrong epoch", "unknown session"])
def test_unknown_fetch_session_costs_one_request_and_no_record(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch, falsify: tuple[int, int]
) -> None:
    fetches = Fetches(falsify=dict.fromkeys((4, 9), falsify))
    monkeypatch.setattr(fetcher, "encode_fetch", fetches.encode)
    create_pair(clusters, topic_name, partitions=3)
    producer = producer_for(clusters[0])

    with Copier(plan_of(clusters, topic_name, partitions=3)) as copier:
        for number in range(40):
            producer.produce(topic_name, value=b"%d" % number, partition=number % 3)
            producer.flush()
            known = len(fetches.steps)
            wait_for(partial(_more_than, known, fetches.steps))
        copier.wait_for_ends(ends_of(clusters[0], topic_name, partitions=3))

    assert fetches.steps[4] == fetches.steps[3]._replace(epoch=0)
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name, partitions=3) == 40


def _more_than(known: int, steps: list[SessionStep]) -> bool:
    return len(steps) > known


def test_partitions_share_produce_requests(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def encode(batches: Mapping[bytes, Sequence[tuple[int, Bytes]]], **rest: Any) -> list[Bytes]:
        sent.append(sum(map(len, batches.values())))
        return requests.encode_produce(batches, **rest)

    monkeypatch.setattr(producer_module, "requests", SimpleNamespace(**(vars(requests) | {"encode_produce": encode})))
    create_pair(clusters, topic_name, partitions=PARTITIONS)
    producer = producer_for(clusters[0])
    for number in range(PARTITIONS * 4):
        producer.produce(topic_name, value=b"%d" % number, partition=number % PARTITIONS)
    producer.flush()

    copy_all(clusters, topic_name, partitions=PARTITIONS)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name, partitions=PARTITIONS) == PARTITIONS * 4
    assert max(sent) > PARTITIONS / 4


def test_tails_of_partitions_without_a_leader_are_read_together(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: Counter[str] = Counter()
    readings: list[int] = []

    def read(cluster: Any, queries: Sequence[LogEndQuery], **rest: Any) -> Mapping[str, LogEnd | LinkEngineError]:
        readings.append(len(queries))
        found: dict[str, LogEnd | LinkEngineError] = dict(read_log_ends(cluster, queries, **rest))
        for key in [query.assignment.key for query in queries]:
            if failures[key] < FAILURES:
                failures[key] += 1
                found[key] = BrokerError(KafkaCode.NOT_LEADER_OR_FOLLOWER, "The broker is busy creating the topic")
        return found

    monkeypatch.setattr(side, "read_log_ends", read)
    create_pair(clusters, topic_name, partitions=PARTITIONS)

    with Copier(plan_of(clusters, topic_name, partitions=PARTITIONS)) as copier:
        copier.wait_for_ends(dict.fromkeys(range(PARTITIONS), 0))

    assert set(failures.values()) == {FAILURES}
    assert len(readings) < PARTITIONS


def test_bandwidth_limit_is_kept(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0])
    for _ in range(40):
        producer.produce(topic_name, value=b"x" * 50_000)
        producer.flush()
    began = time.monotonic()

    copy_all(clusters, topic_name, bytes_per_s=1_000_000)  # 2 MB, of which a quarter of a second's worth is fetched at once

    assert time.monotonic() - began > 1.5
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 40
