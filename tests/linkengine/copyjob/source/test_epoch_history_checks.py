"""The check that a source leader still has what was read in another epoch: per mirror, at every change of the epoch."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.source import leaders
from linkengine.copyjob.source.leaders import OlderEpochError, ReadUpTo, find_truncated
from linkengine.copyjob.values import SourceOrigin
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.protocol import LEADER_MOVED, BrokerError, KafkaCode
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import NOWHERE, partition


def test_each_mirror_of_a_source_partition_is_checked_with_its_own_past(monkeypatch: pytest.MonkeyPatch) -> None:
    assignments = [
        PartitionAssignment(
            mirror_id=name, partition=0, source_topic="t", mirror_topic=name, source_topic_id="", producer_id=1 << 62
        )
        for name in ("behind", "ahead", "also-behind")
    ]

    def ends(_: Any, __: int, requested: Mapping[Any, Any]) -> dict[Any, Any]:
        return dict.fromkeys(requested, (0, 4, 50))  # the leader kept the predecessors' records up to here

    monkeypatch.setattr(leaders, "epoch_ends", ends)
    seen = {f"{name}/0": ReadUpTo(epoch=4, end=end) for name, end in (("behind", 40), ("ahead", 60), ("also-behind", 50))}
    origin = SourceOrigin(Leader(broker=1, epoch=5), b"t")

    found = find_truncated(NOWHERE, assignments, found=dict.fromkeys(seen, origin), seen=seen)

    assert list(found) == ["ahead/0"]


@pytest.mark.parametrize("epoch_end", [(0, -1, -1), (0, 3, 5_000)], ids=["not known", "the epoch before"])
@pytest.mark.parametrize("is_final", [True, False])
def test_leader_of_an_older_epoch_is_never_trusted(
    monkeypatch: pytest.MonkeyPatch, epoch_end: tuple[int, int, int], is_final: bool
) -> None:
    error = stepped_back(monkeypatch, epoch_end, is_final=is_final)

    assert isinstance(error, OlderEpochError)
    assert error.is_final is is_final
    assert (error.code, error.final().code) == (ErrorCode.TIMEOUT_ERROR, ErrorCode.UNEXPECTED_TRUNCATION)
    assert "led in epoch 3; up to offset 40 it was read in epoch 5" in error.message


@pytest.mark.parametrize("code", sorted(LEADER_MOVED))
def test_error_of_a_moved_leader_is_returned_as_it_is(monkeypatch: pytest.MonkeyPatch, code: KafkaCode) -> None:
    error = stepped_back(monkeypatch, (code, -1, -1), is_final=True)

    assert isinstance(error, BrokerError)
    assert error.kafka_code == code


def stepped_back(monkeypatch: pytest.MonkeyPatch, epoch_end: tuple[int, int, int], *, is_final: bool) -> LinkEngineError:
    """Return the error of a partition read in epoch 5 whose leader is of epoch 3 and returns ``epoch_end`` for epoch 5."""
    monkeypatch.setattr(leaders, "epoch_ends", lambda _, __, requested: dict.fromkeys(requested, epoch_end))
    assignment = partition().assignment
    cluster: Any = SimpleNamespace()
    found: dict[str, SourceOrigin | LinkEngineError] = {assignment.key: SourceOrigin(Leader(broker=1, epoch=3), b"t")}
    return find_truncated(
        cluster, [assignment], found=found, seen={assignment.key: ReadUpTo(epoch=5, end=40)}, is_final=is_final
    )[assignment.key]
