"""Single reads for checks, against answers as brokers give them: a quota that is used up, and a leader that sends away."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import reading
from linkengine.kafka.codes import RedirectedError
from linkengine.kafka.reading import QUOTA_S, read_batches, read_committed

TOPIC = ("orders", bytes(15) + b"\x01", 0)
VERSION = 13
Part = FetchResponse.FetchableTopicResponse.PartitionData


def answer(*parts: Any, throttle_ms: int = 0) -> Any:
    """A response after a trip through the library's own codec; without a part it names no topic, as brokers do it."""
    topics = [FetchResponse.FetchableTopicResponse(topic="", partitions=[one]) for one in parts]
    whole = FetchResponse(version=VERSION, throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=topics)
    return FetchResponse.decode(bytes(whole.encode()), version=VERSION)


def part(records: bytes, *, replica: int = -1) -> Any:
    return Part(
        partition_index=0, error_code=0, high_watermark=9, last_stable_offset=9, log_start_offset=0,
        aborted_transactions=[], preferred_read_replica=replica, records=records,
    )  # fmt: skip


class Broker:
    """A connection with prepared answers, the last of them again and again; time passes while somebody sleeps only."""

    peer = "broker:9092"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.now, self.asked = 0.0, 0
        self._answers = list(answers)
        monkeypatch.setattr(reading.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(reading.time, "sleep", self._sleep)

    def version_for(self, *_: Any, **__: Any) -> int:
        return VERSION

    def request(self, *_: Any, read: Callable[[Any], Any], **__: Any) -> Any:
        self.asked += 1
        return read(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_quota_is_waited_out_as_the_broker_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broker: Any = Broker(monkeypatch, answer(throttle_ms=3_000), answer(throttle_ms=500), answer(part(b"batches")))

    error, records = read_batches(broker, topic=TOPIC, leader_epoch=3, offset=5)

    assert (error, bytes(records)) == (0, b"batches")
    assert (broker.asked, broker.now) == (3, 3.5)


@pytest.mark.parametrize("throttle_ms", [60_000, 1_000, 0])
def test_a_quota_that_lasts_is_told_in_time(monkeypatch: pytest.MonkeyPatch, throttle_ms: int) -> None:
    broker: Any = Broker(monkeypatch, answer(throttle_ms=throttle_ms))

    with pytest.raises(LinkEngineError, match="quota") as told:
        read_committed(broker, topic=TOPIC, leader_epoch=3, offset=5)

    assert told.value.code is ErrorCode.TIMEOUT_ERROR
    assert broker.now <= QUOTA_S


def test_a_leader_that_sends_readers_elsewhere_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    broker: Any = Broker(monkeypatch, answer(part(b"", replica=2)))

    with pytest.raises(RedirectedError, match="orders-0 sends readers to broker 2"):
        read_committed(broker, topic=TOPIC, leader_epoch=3, offset=5)
