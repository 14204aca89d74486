"""How a mirror's log end is judged, without brokers: the topic's id, foreign writes, and when a tail check is needed."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.producer_state import Unacknowledged, coordinator_epoch_for
from linkengine.copyjob.resume import log_end as log_end_module
from linkengine.copyjob.resume.log_end import StillWaitingError, read_log_ends
from linkengine.copyjob.values import LogEnd, LogEndQuery, LogTail, LostMarker
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.producers import ProducerState
from linkengine.kafka import offsets as offsets_module
from linkengine.kafka.protocol import UnreplicatedError
from linkengine.kafka.topicviews import Leader, Survey, TopicMetadata

PLACE = ("t", 0)
VIEW = TopicMetadata(topic_id=b"0123456789abcdef", partitions={0: Leader(broker=1, epoch=2)})
SURVEY = Survey(topics={"t": VIEW}, complete=True, unlisted_brokers=set(), topic_ids={"t": frozenset({VIEW.topic_id_text})})
CLUSTER: Any = SimpleNamespace(survey=lambda _: SURVEY, open=lambda _: SimpleNamespace(close=lambda: None))
RANGE = LogTail(start=0, end=10, records={}, markers=frozenset())


@pytest.fixture(autouse=True)
def ends_at_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ProducerState(epoch=0, last_sequence=9, coordinator_epoch=0)
    show_offsets(monkeypatch, lambda *_, timestamp, **__: {PLACE: (0, 0 if timestamp == offsets_module.EARLIEST else 10)})
    monkeypatch.setattr(log_end_module, "log_ends", lambda *_, **__: {PLACE: (0, 10)})
    monkeypatch.setattr(log_end_module, "describe_producers", lambda *_, **__: {PLACE: (0, state)})
    monkeypatch.setattr(log_end_module, "read_log_tail", lambda *_, **__: RANGE)


def show_offsets(monkeypatch: pytest.MonkeyPatch, list_offsets: Callable[..., dict[tuple[str, int], tuple[int, int]]]) -> None:
    """Simulate ListOffsets for the module, and of what it calls to read log starts."""
    for module in (log_end_module, offsets_module):
        monkeypatch.setattr(module, "list_offsets", list_offsets)


def assigned(mirror_topic_id: str = "") -> PartitionAssignment:
    return PartitionAssignment(
        mirror_id="1",
        partition=0,
        source_topic="t",
        mirror_topic="t",
        source_topic_id="",
        mirror_topic_id=mirror_topic_id,
        producer_id=1 << 62,
    )


def read(*, mirror_topic_id: str = "", **query: Any) -> LogEnd | LinkEngineError:
    assignment = assigned(mirror_topic_id)
    return read_log_ends(CLUSTER, [LogEndQuery(assignment=assignment, **query)])[assignment.key]


def test_topic_with_another_id_is_not_the_mirror() -> None:
    found = read(mirror_topic_id="another", clean=True)

    assert isinstance(found, LinkEngineError)
    assert found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR  # to be confirmed: a broker's metadata may be outdated
    for same in ("", VIEW.topic_id_text):
        assert isinstance(read(mirror_topic_id=same, clean=True), LogEnd)


@pytest.mark.parametrize(
    ("complete", "unlisted", "known_as", "missing"),
    [(True, False, [], True), (False, False, [], False), (True, True, [], False), (True, False, ["mine"], False)],
    ids=["all agree", "a broker does not respond", "most brokers are not known yet", "a broker still has it"],
)
@pytest.mark.parametrize("instead", [False, True], ids=["no topic", "another topic"])
def test_mirror_topic_is_missing_only_if_all_brokers_agree(
    monkeypatch: pytest.MonkeyPatch, known_as: list[str], *, complete: bool, unlisted: bool, instead: bool, missing: bool
) -> None:
    """A broker that was cut off before the topic was created does not know it, and a missing topic is not retried."""
    view = VIEW if instead else TopicMetadata(topic_id=bytes(16), partitions={}, error=3)
    survey = Survey(
        topics={"t": view},
        complete=complete,
        unlisted_brokers=set(),
        topic_ids={"t": frozenset(known_as)},
        unlisted_may_be_majority=unlisted,
    )
    monkeypatch.setattr(CLUSTER, "survey", lambda _: survey)

    found = read(mirror_topic_id="mine", clean=False)

    assert isinstance(found, LinkEngineError)
    assert found.code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR if missing else ErrorCode.TIMEOUT_ERROR)


@pytest.mark.parametrize(("broker", "waits"), [(1, True), (2, False)], ids=["elected again", "another broker"])
def test_lost_marker_is_waited_for_if_its_broker_is_leader_again(broker: int, waits: bool) -> None:
    """The request names no leader epoch, so the broker writes it under a newer epoch as well."""
    found = read(clean=False, lost_marker=LostMarker(broker=broker, until=time.monotonic() + 60.0))

    assert isinstance(found, StillWaitingError) is waits


@pytest.mark.parametrize(("previous_end", "proven"), [(10, False), (1_000, True)], ids=["as released", "shorter"])
def test_mirror_shorter_than_at_its_release_needs_a_tail_check(previous_end: int, proven: bool) -> None:
    found = read(clean=True, expected_end=previous_end)

    assert isinstance(found, LogEnd)
    assert (found.tail is RANGE) is proven


GOOD = (10, ProducerState(epoch=0, last_sequence=9, coordinator_epoch=0))


@pytest.mark.parametrize(
    "damaged",
    [
        (2, GOOD[1]),  # the records from there on would be copied a second time
        (10, replace(GOOD[1], coordinator_epoch=1)),  # looks like the fence of a stop: the mirror would fail permanently
        (10, replace(GOOD[1], epoch=1 << 14)),  # markers would use up the epochs
        (10, ProducerState()),
    ],
    ids=["end", "coordinator epoch", "epoch", "producer id"],
)
@pytest.mark.parametrize("at", [0, 1])
def test_damaged_response_does_not_count_even_after_a_clean_handover(
    monkeypatch: pytest.MonkeyPatch, damaged: tuple[int, ProducerState], at: int
) -> None:
    readings = count()
    responses: list[tuple[int, ProducerState]] = []

    def describe(*_: object, **__: object) -> dict[tuple[str, int], tuple[int, ProducerState]]:
        responses.append(damaged if next(readings) == at else GOOD)
        return {PLACE: (0, responses[-1][1])}

    monkeypatch.setattr(log_end_module, "describe_producers", describe)
    monkeypatch.setattr(log_end_module, "log_ends", lambda *_, **__: {PLACE: (0, responses[-1][0])})

    found = read(clean=True, expected_end=GOOD[0])

    assert isinstance(found, LogEnd)
    assert (found.end, found.producer) == GOOD


@pytest.mark.parametrize(
    "damaged",
    [replace(GOOD[1], epoch=1 << 14), replace(GOOD[1], coordinator_epoch=1 << 20), ProducerState()],
    ids=["epoch", "coordinator epoch", "producer id"],
)
@pytest.mark.parametrize("at", [0, 1])
def test_epochs_of_a_fence_do_not_follow_from_a_damaged_response(
    monkeypatch: pytest.MonkeyPatch, damaged: ProducerState, at: int
) -> None:
    readings = count()
    monkeypatch.setattr(
        log_end_module, "describe_producers", lambda *_, **__: {PLACE: (0, damaged if next(readings) == at else GOOD[1])}
    )

    found, again = (read(clean=False, once=True) for _ in range(2))

    assert isinstance(found, LinkEngineError)
    assert found.code == ErrorCode.TIMEOUT_ERROR
    assert isinstance(again, LogEnd)
    assert again.producer == GOOD[1]


def test_end_for_a_fence_may_move_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    ends, sequences = count(10), count(9)
    monkeypatch.setattr(log_end_module, "log_ends", lambda *_, **__: {PLACE: (0, next(ends))})
    monkeypatch.setattr(
        log_end_module, "describe_producers", lambda *_, **__: {PLACE: (0, replace(GOOD[1], last_sequence=next(sequences)))}
    )

    found = read(clean=False, once=True)

    assert isinstance(found, LogEnd)
    assert found.end == 11


@pytest.mark.parametrize("start", [10, 1 << 40])
@pytest.mark.parametrize("at", [0, 1])
def test_damaged_log_start_does_not_spare_a_mirror_its_tail_check(monkeypatch: pytest.MonkeyPatch, start: int, at: int) -> None:
    """A log that starts at its end has no records to compare."""
    readings = count()

    def offsets(*_: object, timestamp: int, **__: object) -> dict[tuple[str, int], tuple[int, int]]:
        if timestamp != offsets_module.EARLIEST:
            return {PLACE: (0, 10)}
        return {PLACE: (0, start if next(readings) == at else 0)}

    show_offsets(monkeypatch, offsets)

    found = read(clean=False, check_tail=True)

    assert isinstance(found, LogEnd)
    assert found.tail is RANGE


@pytest.mark.parametrize(
    ("sent_end", "unconfirmed_at", "proven"),
    [(1_000, None, True), (1_000, 1_000, True), (1_000, 11, True), (1_000, 10, False), (10, None, False)],
    ids=["all acknowledged", "all but the last", "an acknowledged one is missing", "none arrived", "unchanged"],
)
def test_mirror_that_lost_acknowledged_records_needs_a_tail_check(
    sent_end: int, unconfirmed_at: int | None, proven: bool
) -> None:
    """After an unclean leader election at the destination, what follows has to fit what is left."""
    unacknowledged = (
        None if unconfirmed_at is None else Unacknowledged(offset=unconfirmed_at, sequence=None, producer_id=1 << 62)
    )

    found = read(clean=False, expected_end=sent_end, unacknowledged=unacknowledged)

    assert isinstance(found, LogEnd)
    assert (found.tail is RANGE) is proven


@pytest.mark.parametrize(
    ("previous_end", "unconfirmed_at", "coordinator_epoch", "foreign"),
    [
        (9, None, 0, True),
        (9, None, 1, False),
        (10, None, 0, False),
        (1_000, None, 0, False),
        (10, 8, 0, False),
        (None, None, 0, False),
    ],
    ids=["foreign write", "stopped", "all that was sent", "less than was sent", "unacknowledged", "unknown"],
)
def test_empty_mirror_that_starts_behind_everything_sent_had_a_foreign_write(
    monkeypatch: pytest.MonkeyPatch, previous_end: int | None, unconfirmed_at: int | None, coordinator_epoch: int, foreign: bool
) -> None:
    """Retention, or following the source's log start, may empty the mirror up to everything sent, and no further."""
    state = ProducerState(epoch=0, last_sequence=9, coordinator_epoch=coordinator_epoch)
    monkeypatch.setattr(log_end_module, "describe_producers", lambda *_, **__: {PLACE: (0, state)})
    show_offsets(monkeypatch, lambda *_, **__: {PLACE: (0, 10)})
    unacknowledged = (
        None if unconfirmed_at is None else Unacknowledged(offset=unconfirmed_at, sequence=None, producer_id=1 << 62)
    )

    found = read(
        clean=unacknowledged is None,
        expected_end=previous_end,
        previous_end=previous_end,
        check_tail=previous_end is None,
        unacknowledged=unacknowledged,
    )

    assert isinstance(found, LinkEngineError) is foreign
    assert not isinstance(found, LinkEngineError) or (found.code, "offset 9." in found.message) == (
        ErrorCode.FOREIGN_WRITE,
        True,
    )


@pytest.mark.parametrize(("replicated", "unconfirmed_at", "counts"), [(9, 8, False), (10, 8, True), (9, 10, True)])
def test_unacknowledged_append_counts_as_mirrored_when_it_is_replicated(
    monkeypatch: pytest.MonkeyPatch, replicated: int, unconfirmed_at: int, counts: bool
) -> None:
    """A leader with too few in-sync followers appends and returns an error; if it is lost, so are the records."""
    show_offsets(
        monkeypatch, lambda *_, timestamp, **__: {PLACE: (0, 0 if timestamp == offsets_module.EARLIEST else replicated)}
    )

    found = read(
        clean=False,
        expected_end=10,
        unacknowledged=Unacknowledged(offset=unconfirmed_at, sequence=unconfirmed_at, producer_id=1 << 62),
    )

    assert isinstance(found, LogEnd if counts else UnreplicatedError)
    assert not isinstance(found, LogEnd) or found.tail is None


@pytest.mark.parametrize(
    ("query", "foreign", "code"),
    [
        ({"expected_end": 10}, 11, ErrorCode.FOREIGN_WRITE),
        ({"check_tail": True}, 11, ErrorCode.FOREIGN_WRITE),
        ({"expected_end": 10}, None, ErrorCode.TIMEOUT_ERROR),
        ({}, 11, ErrorCode.TIMEOUT_ERROR),
    ],
    ids=["foreign", "foreign, expected end unknown", "another copy worker", "not a query for copying"],
)
def test_writer_of_a_log_end_that_keeps_moving_is_identified(
    monkeypatch: pytest.MonkeyPatch, query: dict[str, Any], foreign: int | None, code: ErrorCode
) -> None:
    ends, checked = count(11), list[tuple[int, int]]()

    def first_foreign_batch(*_: object, offsets: tuple[int, int], **__: object) -> int | None:
        checked.append(offsets)
        return foreign

    monkeypatch.setattr(log_end_module, "log_ends", lambda *_, **__: {PLACE: (0, next(ends))})
    monkeypatch.setattr(log_end_module, "first_foreign_batch", first_foreign_batch)

    found = read(clean=False, **query)

    assert isinstance(found, LinkEngineError)
    assert found.code == code
    assert checked == ([(11, 12)] if query else [])


def test_writes_to_a_stopped_mirror_are_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence in the log shows that it was stopped; a copy worker finds it before it writes (``producer_state``)."""
    ends, state = count(11), ProducerState(epoch=0, last_sequence=9, coordinator_epoch=coordinator_epoch_for(3, fence=True))
    monkeypatch.setattr(log_end_module, "log_ends", lambda *_, **__: {PLACE: (0, next(ends))})
    monkeypatch.setattr(log_end_module, "describe_producers", lambda *_, **__: {PLACE: (0, state)})
    monkeypatch.setattr(
        log_end_module, "first_foreign_batch", lambda *_, **__: pytest.fail("batches of a stopped mirror were checked")
    )

    found = read(clean=False, expected_end=16)

    assert isinstance(found, LogEnd)
    assert found.producer == state
