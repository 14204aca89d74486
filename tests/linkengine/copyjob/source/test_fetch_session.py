"""Fetch sessions (KIP-227): requests name only changes, and a session dropped by the broker is created again."""

import pytest

from linkengine.copyjob.source.fetch_session import LAST_EPOCH, Reading, ReadSession
from linkengine.kafka.requests import FETCH_BY_NAME, FetchLimits, FetchPosition, SessionStep, encode_fetch
from tests.linkengine.copyjob.partitions import partition

TOPIC = b"0123456789abcde\xff"  # a topic id, which is not valid UTF-8
LIMITS = FetchLimits(max_bytes=1, max_wait_ms=1)


def reading(number: int, offset: int) -> Reading:
    return Reading(partition(number), 0, FetchPosition(number, 3, offset, 1_000))


def session_of(*offsets: int, session: int = 77) -> ReadSession:
    """Return a session after its first response."""
    reads = ReadSession()
    for number, offset in enumerate(offsets):
        reads.want((TOPIC, number), reading(number, offset))
    reads.request()
    reads.responded(session)
    return reads


def requested(session: ReadSession) -> tuple[SessionStep, list[tuple[int, int]], list[int]]:
    request = session.request()
    positions = [(position.partition, position.offset) for position in request.positions.get(TOPIC, [])]
    return request.step, positions, request.forgotten.get(TOPIC, [])


def test_first_request_names_all_partitions_and_creates_a_session() -> None:
    session = ReadSession()
    session.want((TOPIC, 0), reading(0, 5))
    session.want((TOPIC, 1), reading(1, 6))

    assert requested(session) == (SessionStep(0, 0), [(0, 5), (1, 6)], [])


def test_later_requests_name_only_changes() -> None:
    session = session_of(5, 6, 7)

    session.want((TOPIC, 1), reading(1, 10))
    session.drop((TOPIC, 2))
    first = requested(session)
    session.responded(77)

    assert first == (SessionStep(77, 1), [(1, 10)], [2])
    assert requested(session) == (SessionStep(77, 2), [], [])


def test_partition_added_again_before_the_next_request_begins_a_session_that_names_its_high_watermark_again() -> None:
    """A response in between may have named it, which was ignored; later responses of that session would not repeat it."""
    session = session_of(5, 6)

    session.drop((TOPIC, 0))
    session.want((TOPIC, 0), reading(0, 9))

    assert requested(session) == (SessionStep(77, 0), [(1, 6), (0, 9)], [])


def test_without_a_session_every_request_names_all_partitions_longest_waiting_first() -> None:
    session = session_of(5, 6, session=0)
    session.want((TOPIC, 0), reading(0, 8))

    assert requested(session) == (SessionStep(0, 0), [(1, 6), (0, 8)], [])


def test_session_dropped_by_the_broker_is_recreated_with_all_positions() -> None:
    session = session_of(5, 6)
    session.want((TOPIC, 0), reading(0, 9))
    session.request()

    session.restart()

    assert requested(session) == (SessionStep(77, 0), [(1, 6), (0, 9)], [])
    session.responded(78)
    assert requested(session) == (SessionStep(78, 1), [], [])


def test_throttled_response_leads_to_a_full_request() -> None:
    session = session_of(5)

    session.responded(0)

    assert requested(session) == (SessionStep(0, 0), [(0, 5)], [])


def test_epochs_wrap_to_one() -> None:
    session = session_of(5)
    session._epoch = LAST_EPOCH

    session.responded(77)

    assert requested(session)[0] == SessionStep(77, 1)


def test_lost_connection_removes_all_partitions() -> None:
    session = session_of(5)

    session.forget_all()

    assert requested(session) == (SessionStep(0, 0), [], [])


@pytest.mark.parametrize("change", ["position", "attempt", "stage"])
def test_response_is_not_current_after_the_partition_changed(change: str) -> None:
    entry = reading(0, 5)
    mirror = entry.partition
    mirror.stage = type(mirror.stage).COPYING
    mirror.position = 5
    assert entry.current

    if change == "position":
        mirror.position = 6
    elif change == "attempt":
        mirror.attempt += 1
    else:
        mirror.stop()

    assert not entry.current


def test_topic_without_an_id_makes_all_topics_be_requested_by_name() -> None:
    session = session_of(5)

    session.want((b"t", 1), reading(1, 1), by_id=False)
    request = session.request()

    assert request.by_id is False
    assert request.step == SessionStep(77, 0)
    assert request.positions == {b"t": [reading(0, 5).position, reading(1, 1).position]}
    encode_fetch(request.positions, version=FETCH_BY_NAME, correlation_id=1, limits=LIMITS, step=request.step)
    assert (session.named((b"t", 0)), session.named((b"t", 1))) == (session.entries[TOPIC, 0], session.entries[b"t", 1])
    assert session.named((b"other", 0)) is None


def test_partition_read_by_name_is_forgotten_by_name_unless_it_is_now_read_by_id() -> None:
    session = session_of()
    for number in (0, 1):
        session.want((b"t", number), reading(number, 5), by_id=False)
    session.want((TOPIC, 2), reading(2, 5))
    session.request()
    session.responded(77)

    session.drop((b"t", 0))
    session.want((TOPIC, 0), reading(0, 6))  # the topic has an id now
    session.drop((TOPIC, 2))

    request = session.request()
    assert request.positions == {b"t": [reading(0, 6).position]}
    assert request.forgotten == {b"t": [2]}


def test_partition_requested_alone_is_named_by_id_or_by_name() -> None:
    session = session_of(5)
    session.want((b"t", 1), reading(1, 6), by_id=False)

    requests = [session.probe(place, session.entries[place]) for place in ((TOPIC, 0), (b"t", 1))]

    assert [(request.by_id, [*request.positions]) for request in requests] == [(True, [TOPIC]), (False, [b"t"])]


def test_response_does_not_count_for_a_partition_that_its_request_did_not_name() -> None:
    session, late = session_of(5), (TOPIC, 1)
    counted = [session.was_complete((TOPIC, 0))]

    session.want(late, reading(1, 6))
    counted.append(session.was_complete(late))
    session.request()
    counted.append(session.was_complete(late))
    session.responded(0, complete=False)  # throttled
    session.request()
    counted.append(session.was_complete(late))
    session.responded(77)

    assert [*counted, session.was_complete(late)] == [True, False, False, False, True]


def test_change_since_the_last_request_does_not_count_as_requested() -> None:
    session = session_of(5, 6)

    session.want((TOPIC, 0), reading(0, 9))

    assert not session.was_requested((TOPIC, 0))
    assert session.was_requested((TOPIC, 1))
    session.request()
    assert session.was_requested((TOPIC, 0))
