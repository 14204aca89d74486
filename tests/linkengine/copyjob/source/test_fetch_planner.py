"""FetchPlanner plans partitions of decoded Fetch responses; without brokers."""

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from linkengine.batches.steps import Append, Fill
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source.fetch_planner import FetchEvents, FetchPlanner
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.protocol import BrokerError, RedirectedError
from linkengine.kafka.requests import FETCH_BY_ID, FetchedPartition, decode_fetch
from linkengine.kafka.topicviews import Leader
from tests.linkengine.batches.batchlog import TRANSACTIONAL, Batch, Rec, dense, marker
from tests.linkengine.copyjob.partitions import partition, unexpected

TOPIC_ID = uuid.UUID(int=77)
HUGE = Rec(value=b"x" * 70_000)  # too large to be merged with a neighbour


class RecordedPlanner:
    """A FetchPlanner that records its events."""

    def __init__(self) -> None:
        self.planned = 0
        self.refusals: list[LinkEngineError] = []
        self.ends: list[int] = []
        events = FetchEvents(planned=self._plan, refused=self._refuse, emptied=self._empty, lost=unexpected)
        tuning, pool = SimpleNamespace(coalesce_bytes=1 << 20), SimpleNamespace(loose=lambda _: None)
        services: Any = SimpleNamespace(tuning=tuning, pool=pool)
        self.planner = FetchPlanner(services, events)

    def take(self, mirror: PartitionState, part: FetchedPartition, *, alone: bool = False) -> None:
        self.planner.take(mirror, part, Buffer(), responded_ms=5, alone=alone)

    def _plan(self, _: PartitionState) -> None:
        self.planned += 1

    def _refuse(self, _: PartitionState, error: LinkEngineError) -> None:
        self.refusals.append(error)

    def _empty(self, _: PartitionState, end: int) -> None:
        self.ends.append(end)


@pytest.fixture
def recorded() -> RecordedPlanner:
    return RecordedPlanner()


def copying(position: int) -> PartitionState:
    mirror = partition()
    mirror.stage, mirror.position, mirror.origin = (
        Stage.COPYING,
        position,
        SourceOrigin(Leader(broker=0, epoch=1), TOPIC_ID.bytes),
    )
    return mirror


def response(*batches: Batch, end: int, replica: int = -1) -> FetchedPartition:
    data = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=end, last_stable_offset=end, log_start_offset=0,
        aborted_transactions=[], preferred_read_replica=replica, records=b"".join(batch.encode() for batch in batches),
    )  # fmt: skip
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
    whole = FetchResponse(version=FETCH_BY_ID, throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])
    (part,) = decode_fetch(memoryview(bytearray(b"\x00" + whole.encode())), version=FETCH_BY_ID).partitions
    return part


@pytest.mark.parametrize("alone", [True, False])
def test_response_with_a_preferred_replica_changes_no_log_end(recorded: RecordedPlanner, alone: bool) -> None:
    mirror = copying(100)

    recorded.take(mirror, response(end=5_000, replica=2), alone=alone)

    assert (recorded.ends, recorded.planned) == ([], 0)
    (refusal,) = recorded.refusals
    assert isinstance(refusal, RedirectedError)
    assert refusal.code is ErrorCode.MISCONFIGURATION_ERROR
    assert "source t-0 sends readers to broker 2" in refusal.message
    assert (mirror.counters.source_end, mirror.read_position.proven) == (None, False)


def test_empty_response_to_a_single_partition_is_an_empty_end(recorded: RecordedPlanner) -> None:
    recorded.take(copying(100), response(end=5_000), alone=True)

    assert (recorded.ends, recorded.refusals) == ([5_000], [])


def test_bytes_without_a_whole_batch_are_corrupt_and_retried_after_a_pause(recorded: RecordedPlanner) -> None:
    mirror, whole = copying(4), response(dense(4, [HUGE]), end=20)
    mirror.source_backoff.next_pause()

    recorded.take(mirror, whole._replace(records=whole.records[:-1]))

    assert [error.code for error in recorded.refusals] == [ErrorCode.CORRUPT_RECORDS]
    assert "from offset 4 on holds no whole batch" in recorded.refusals[0].message
    assert (recorded.planned, recorded.ends, mirror.source_backoff.rested) == (0, [], False)


def test_batches_beyond_the_last_stable_offset_are_left_to_the_next_response(recorded: RecordedPlanner) -> None:
    """The broker determines that offset before it reads."""
    recorded.take(copying(4), response(dense(4, [HUGE]), end=4))

    assert (recorded.planned, recorded.refusals, recorded.ends) == (0, [], [])


def test_unconfirmed_gap_is_filled_when_it_is_read_a_second_time(recorded: RecordedPlanner) -> None:
    mirror = copying(4)

    recorded.take(mirror, response(dense(9, [HUGE]), end=20))
    assert (recorded.planned, recorded.refusals, len(mirror.chunks)) == (0, [], 0)
    recorded.take(mirror, response(dense(9, [HUGE]), end=20))

    (chunk,) = mirror.chunks
    assert [(type(step), step.start, step.end) for step in chunk.steps] == [(Fill, 4, 9), (Append, 9, 10)]


def test_gap_that_disappears_on_the_second_read_is_not_filled(recorded: RecordedPlanner) -> None:
    mirror = copying(4)

    recorded.take(mirror, response(dense(12, [HUGE]), end=20))  # a bit was flipped on the way
    recorded.take(mirror, response(dense(4, [HUGE]), end=20))

    assert [(type(step), step.start, step.end) for chunk in mirror.chunks for step in chunk.steps] == [(Append, 4, 5)]


@pytest.mark.parametrize(
    ("commits", "damaged", "listed", "planned"),
    [
        (False, ((4, 0),), ((5, 0),), [(Fill, 0, 1), (Fill, 1, 2)]),
        (True, ((5, 0),), ((4, 0),), [(Append, 0, 1), (Fill, 1, 2)]),
    ],
    ids=["aborted", "committed"],
)
def test_list_of_aborted_transactions_that_a_marker_contradicts_is_read_again(
    recorded: RecordedPlanner, commits: bool, damaged: Any, listed: Any, planned: Any
) -> None:
    """Otherwise committed records would be lost, or aborted records copied."""
    mirror, whole = copying(0), response(dense(0, [HUGE], bits=TRANSACTIONAL, producer_id=5), marker(1, commits, 5), end=2)

    recorded.take(mirror, whole._replace(aborted=damaged))
    assert (recorded.planned, recorded.refusals, len(mirror.chunks), mirror.position) == (0, [], 0, 0)
    recorded.take(mirror, whole._replace(aborted=listed))

    assert [(type(step), step.start, step.end) for chunk in mirror.chunks for step in chunk.steps] == planned


def test_batch_that_stays_beyond_the_last_stable_offset_is_corrupt(recorded: RecordedPlanner) -> None:
    mirror = copying(4)

    for _ in range(3):
        recorded.take(mirror, response(dense(1 << 40, [HUGE]), end=20))

    assert (recorded.planned, mirror.position) == (0, 4)
    assert [error.code for error in recorded.refusals] == [ErrorCode.CORRUPT_RECORDS] * 2


def test_only_batches_before_a_batch_with_a_damaged_offset_are_copied(recorded: RecordedPlanner) -> None:
    mirror = copying(0)
    log = [dense(0, [HUGE]), dense(1 ^ 8, [HUGE]), dense(2, [HUGE]), dense(3, [HUGE])]

    recorded.take(mirror, response(*log, end=4))
    assert [(step.start, step.end) for chunk in mirror.chunks for step in chunk.steps] == [(0, 1)]
    recorded.take(mirror, response(*log[1:], end=4))

    assert mirror.position == 1
    assert [error.code for error in recorded.refusals] == [ErrorCode.CORRUPT_RECORDS]


@pytest.mark.parametrize(("byte", "flipped"), [(16, 0x01), (16, 0x02), (16, 0x80), (22, 0x05)], ids=str)
def test_flipped_bit_in_format_or_codec_is_corrupt_but_not_permanent(
    recorded: RecordedPlanner, byte: int, flipped: int
) -> None:
    mirror = copying(0)
    part = response(dense(0, [HUGE]), dense(1, [HUGE]), end=2)
    part.records[len(part.records) // 2 + byte] ^= flipped

    recorded.take(mirror, part)
    assert mirror.position == 1
    recorded.take(mirror, part._replace(records=part.records[len(part.records) // 2 :]))

    assert [error.code for error in recorded.refusals] == [ErrorCode.CORRUPT_RECORDS]


def test_leader_behind_the_position_does_not_update_the_lag(recorded: RecordedPlanner) -> None:
    mirror = copying(1_000)
    mirror.source_responded(start=0, end=1_000, high_watermark=1_200, now_ms=1)

    recorded.take(mirror, response(end=900))

    assert [error.kafka_code for error in recorded.refusals if isinstance(error, BrokerError)] == [1]
    assert (mirror.counters.source_high_watermark, mirror.counters.source_seen_ms) == (1_200, 1)
