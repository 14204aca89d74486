"""What a lookup of offsets makes of answers that real brokers give once in a hundred runs: a success that tells no offset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import admin_offsets
from linkengine.kafka.admin_offsets import OffsetKind, offsets, offsets_at
from linkengine.kafka.admin_session import AdminSession

PLACES = [("orders", 0), ("orders", 1)]


class Answers:
    """A session whose cluster gives these offsets of both partitions, one pair a call."""

    def __init__(self, *rows: tuple[int, int]) -> None:
        self._rows = list(rows)

    def settle(self, *_: Any, **__: Any) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, Any]]:
        """Answer as ``AdminSession.settle``; an invalid offset where a partition was not asked for."""
        row = self._rows.pop(0)
        return {TopicPartition(*place): SimpleNamespace(offset=told) for place, told in zip(PLACES, row, strict=True)}, {}

    def all(self, *_: Any, **__: Any) -> dict[TopicPartition, Any]:
        """Answer as ``AdminSession.all``."""
        return self.settle()[0]


@pytest.fixture(autouse=True)
def known_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_offsets, "names", lambda _: {"orders"})


def told(*rows: tuple[int, int]) -> AdminSession:
    return cast(AdminSession, Answers(*rows))


def test_a_partition_that_tells_no_offset_is_asked_again() -> None:
    assert offsets(told((7, OFFSET_INVALID), (7, 9)), PLACES, OffsetKind.START) == {("orders", 0): 7, ("orders", 1): 9}


def test_and_left_out_if_it_tells_none_then() -> None:
    assert offsets(told((7, OFFSET_INVALID), (7, OFFSET_INVALID)), PLACES, OffsetKind.END) == {("orders", 0): 7}


def test_no_record_of_that_time_and_no_answer_are_told_apart() -> None:
    assert offsets_at(told((7, -1)), PLACES, 0) == {("orders", 0): 7, ("orders", 1): -1}
    with pytest.raises(LinkEngineError, match="Partition 1 of topic 'orders'") as refusal:
        offsets_at(told((7, OFFSET_INVALID)), PLACES, 0)
    assert refusal.value.code is ErrorCode.TIMEOUT_ERROR
