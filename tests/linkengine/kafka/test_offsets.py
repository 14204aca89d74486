"""Lookups of offsets with results that real brokers return once in a hundred runs: a success without an offset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import offsets
from linkengine.kafka.admin_session import AdminSession
from linkengine.kafka.offsets import OffsetKind, offsets_at, offsets_of

PLACES = [("orders", 0), ("orders", 1)]


class FakeSession:
    """A session whose cluster returns these offsets of both partitions, one pair per call."""

    def __init__(self, *rows: tuple[int, int]) -> None:
        self._rows = list(rows)

    def settle(self, *_: Any, **__: Any) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, Any]]:
        """Return what ``AdminSession.settle`` returns; an invalid offset represents a partition without a response."""
        row = self._rows.pop(0)
        return {TopicPartition(*place): SimpleNamespace(offset=offset) for place, offset in zip(PLACES, row, strict=True)}, {}

    def all(self, *_: Any, **__: Any) -> dict[TopicPartition, Any]:
        """Return what ``AdminSession.all`` returns."""
        return self.settle()[0]


@pytest.fixture(autouse=True)
def known_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "names", lambda _: {"orders"})


def session_returning(*rows: tuple[int, int]) -> AdminSession:
    return cast(AdminSession, FakeSession(*rows))


def test_a_partition_without_an_offset_is_read_again() -> None:
    assert offsets_of(session_returning((7, OFFSET_INVALID), (7, 9)), PLACES, OffsetKind.START) == {
        ("orders", 0): 7,
        ("orders", 1): 9,
    }


def test_a_partition_without_an_offset_after_the_second_read_is_left_out() -> None:
    assert offsets_of(session_returning((7, OFFSET_INVALID), (7, OFFSET_INVALID)), PLACES, OffsetKind.END) == {("orders", 0): 7}


def test_no_record_after_a_timestamp_differs_from_no_response() -> None:
    assert offsets_at(session_returning((7, -1)), PLACES, 0) == {("orders", 0): 7, ("orders", 1): -1}
    with pytest.raises(LinkEngineError, match="Partition 1 of topic 'orders'") as refusal:
        offsets_at(session_returning((7, OFFSET_INVALID)), PLACES, 0)
    assert refusal.value.code is ErrorCode.TIMEOUT_ERROR
