"""Single blocking reads with prepared responses: a quota that is used up, and a leader that redirects readers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.protocol import RedirectedError
from linkengine.kafka.single_reads import QUOTA_S, read_batches, read_committed

TOPIC = ("orders", bytes(15) + b"\x01", 0)
VERSION = 13
Part = FetchResponse.FetchableTopicResponse.PartitionData


def response(*parts: Any, throttle_ms: int = 0) -> Any:
    """Return a response after a round trip through kafka-python's codec; without parts it has no topic, as brokers send it."""
    topics = [FetchResponse.FetchableTopicResponse(topic="", partitions=[partition]) for partition in parts]
    whole = FetchResponse(version=VERSION, throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=topics)
    return FetchResponse.decode(bytes(whole.encode()), version=VERSION)


def part(records: bytes, *, replica: int = -1) -> Any:
    return Part(
        partition_index=0, error_code=0, high_watermark=9, last_stable_offset=9, log_start_offset=0,
        aborted_transactions=[], preferred_read_replica=replica, records=records,
    )  # fmt: skip


class Broker:
    """A connection with prepared responses, the last of them repeated; its clock advances only during sleeps."""

    peer = "broker:9092"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *responses: Any) -> None:
        self.now, self.requests = 0.0, 0
        self._responses = list(responses)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)  # of this module only: other threads sleep
        monkeypatch.setattr("linkengine.kafka.single_reads.time", clock)

    def version_for(self, *_: Any, **__: Any) -> int:
        return VERSION

    def request(self, *_: Any, read: Callable[[Any], Any], **__: Any) -> Any:
        self.requests += 1
        return read(self._responses.pop(0) if len(self._responses) > 1 else self._responses[0])

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_read_waits_for_the_throttle_time_of_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    broker: Any = Broker(monkeypatch, response(throttle_ms=3_000), response(throttle_ms=500), response(part(b"batches")))

    error, records = read_batches(broker, topic=TOPIC, leader_epoch=3, offset=5)

    assert (error, bytes(records)) == (0, b"batches")
    assert (broker.requests, broker.now) == (3, 3.5)


@pytest.mark.parametrize("throttle_ms", [60_000, 1_000, 0])
def test_a_lasting_quota_raises_within_the_limit(monkeypatch: pytest.MonkeyPatch, throttle_ms: int) -> None:
    broker: Any = Broker(monkeypatch, response(throttle_ms=throttle_ms))

    with pytest.raises(LinkEngineError, match="quota") as raised:
        read_committed(broker, topic=TOPIC, leader_epoch=3, offset=5)

    assert raised.value.code is ErrorCode.TIMEOUT_ERROR
    assert broker.now <= QUOTA_S


def test_an_empty_response_with_a_preferred_replica_raises_RedirectedError(monkeypatch: pytest.MonkeyPatch) -> None:
    broker: Any = Broker(monkeypatch, response(part(b"", replica=2)))

    with pytest.raises(RedirectedError, match="orders-0 sends readers to broker 2"):
        read_committed(broker, topic=TOPIC, leader_epoch=3, offset=5)
