"""Source errors that leader elections cause: not shown at first, shown if they last, cleared by a successful Fetch."""

from __future__ import annotations

from typing import Any

import pytest

from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source import fetcher, side
from linkengine.copyjob.source.side import STANDSTILL_S, SourceTroubles
from linkengine.copyjob.values import Stage
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.protocol import BrokerError, KafkaCode
from linkengine.kafka.requests import FetchResponse, decode_fetch
from tests.linkengine.copyjob.copying import Copier, Pair, create_pair, plan_of, producer_for
from tests.linkengine.copyjob.partitions import partition

MOVED = BrokerError(KafkaCode.NOT_LEADER_OR_FOLLOWER, "Source t-0 cannot be read")


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def refused(troubles: SourceTroubles, mirror: PartitionState, *, how: str) -> None:
    if how == "moved":
        troubles.note(mirror, MOVED)
    else:
        troubles.hidden(mirror, start=0, end=20)


def reading() -> PartitionState:
    mirror = partition()
    mirror.stage, mirror.position = Stage.COPYING, 7
    return mirror


def refuse_for(seconds: float, clock: Clock, troubles: SourceTroubles, mirror: PartitionState, *, how: str) -> None:
    until = clock.now + seconds
    while clock.now < until:
        refused(troubles, mirror, how=how)
        clock.now = max(mirror.source_retry_at, clock.now)
    clock.now = until


@pytest.mark.parametrize("how", ["moved", "hidden"])
def test_error_of_a_leader_election_is_shown_only_if_it_lasts(clock: Clock, how: str) -> None:
    troubles, mirror = SourceTroubles(clock), reading()

    refuse_for(STANDSTILL_S - 0.1, clock, troubles, mirror, how=how)
    assert mirror.source_trouble is None

    refuse_for(6.0, clock, troubles, mirror, how=how)
    trouble = mirror.source_trouble
    assert trouble is not None
    assert (trouble.phase, trouble.code) == (PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.TIMEOUT_ERROR)
    assert "nothing is copied" in trouble.message


@pytest.mark.parametrize("how", ["moved", "hidden"])
def test_successful_fetch_restarts_the_count_of_election_errors(clock: Clock, how: str) -> None:
    troubles, mirror = SourceTroubles(clock), reading()
    for _ in range(5):
        refuse_for(8.0, clock, troubles, mirror, how=how)
        mirror.source_backoff.reset()
    refused(troubles, mirror, how=how)

    assert mirror.source_trouble is None


def test_observed_end_of_an_unfetched_source_restarts_the_count_of_election_errors(clock: Clock) -> None:
    troubles, mirror = SourceTroubles(clock), reading()
    for _ in range(6):
        refused(troubles, mirror, how="moved")
        troubles.seen(mirror)
        clock.now += 60

    assert mirror.source_trouble is None


@pytest.mark.parametrize("error", [KafkaCode.NOT_LEADER_OR_FOLLOWER, KafkaCode.OFFSET_OUT_OF_RANGE])
def test_partition_refused_for_long_shows_an_error_until_it_is_read(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch, error: KafkaCode
) -> None:
    """The broker is the leader and its log contains the offset, but every Fetch there is refused."""
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0])
    producer.produce(topic_name, value="one")
    assert producer.flush(30) == 0
    refusing = [True]

    def decode_refused(body: memoryview, *, version: int) -> FetchResponse:
        response = decode_fetch(body, version=version)
        changed: dict[str, Any] = {"error": error, "records": memoryview(b"")} if refusing[0] else {}
        return response._replace(partitions=[part._replace(**changed) for part in response.partitions])

    monkeypatch.setattr(fetcher, "decode_fetch", decode_refused)
    monkeypatch.setattr(side, "STANDSTILL_S", 3.0)
    with Copier(plan_of(clusters, topic_name)) as copier:
        unreachable = (PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.TIMEOUT_ERROR)
        copier.wait_until(
            lambda progress: (
                (progress.phase, progress.error_code) == unreachable and "elect another leader" in progress.error_message
            )
        )
        refusing[0] = False
        copier.wait_for_ends({0: 1})
        copier.wait_until(lambda progress: (progress.phase, progress.error_code) == (PartitionPhase.COPYING, ""))
