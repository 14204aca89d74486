"""Irreversible decisions do not follow from a single response; clusters are simulated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkengine.copyjob.stop import takeover
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStop, MirrorSync
from linkengine.domain.plans import LogRange, TopicDescription
from linkengine.domain.states import StopReason
from linkengine.jobs import mirror_topics, reversing, syncing
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.offsets import TopicEnds
from linkengine.kafka.topicviews import Leader, TopicMetadata
from linkengine.sync import topics

TOPIC = TopicDescription(name="t", topic_id="id", partitions=1, replication_factor=1, internal=False, configs={})
ADDRESS = ClusterAddress(bootstrap_servers="127.0.0.1:1", security_protocol="PLAINTEXT")
DAMAGED = 1 << 20


class Source:
    """A source topic with the offsets 10 to 100, which counts how often each offset was read; ``damaged`` by kind and time."""

    def __init__(self, damaged: Mapping[tuple[str, int], int]) -> None:
        self.damaged, self.read = damaged, dict[str, int]()

    def offsets(self, _: str, kind: OffsetKind, *, partitions: int) -> dict[int, int]:
        return dict.fromkeys(range(partitions), self._value(kind, {OffsetKind.START: 10}.get(kind, 100)))

    def offsets_at(self, _: str, __: int, *, partitions: int) -> dict[int, int]:
        return dict.fromkeys(range(partitions), self._value("time", 42))

    def _value(self, name: str, value: int) -> int:
        self.read[name] = self.read.get(name, 0) + 1
        return self.damaged.get((name, self.read[name]), value)


@pytest.mark.parametrize("reading", [1, 2])
@pytest.mark.parametrize(
    ("spec", "kind", "start"),
    [
        ("earliest", OffsetKind.START, 10),
        ("latest", OffsetKind.STABLE_END, 100),
        ("latest", OffsetKind.START, 100),
        ("2020-01-01", "time", 42),
    ],
)
def test_mirror_begins_where_the_lower_of_two_readings_begins(spec: str, kind: str, start: int, reading: int) -> None:
    """Records below the head of a mirror are never copied."""
    source = cast(ClusterAdmin, Source({(kind, reading): DAMAGED}))

    assert mirror_topics._start_offsets(source, TOPIC, spec) == {0: start}


@pytest.mark.parametrize("reading", [1, 2])
def test_restore_exports_from_the_lower_of_two_log_starts(monkeypatch: pytest.MonkeyPatch, reading: int) -> None:
    """The records below it would be deleted with the topic."""
    responses = iter([{0: DAMAGED if number == reading else 7} for number in (1, 2)])
    view = TopicMetadata(topic_id=bytes(16), partitions={0: Leader(broker=1, epoch=1)})
    monkeypatch.setattr(reversing, "Cluster", lambda _: nullcontext(), raising=True)
    monkeypatch.setattr(reversing, "closing", lambda cluster: cluster)
    monkeypatch.setattr(reversing, "newest_view", lambda *_: view)
    monkeypatch.setattr(reversing, "read_offsets", lambda *_, **__: next(responses))
    monkeypatch.setattr(reversing, "read_ends", lambda *_: TopicEnds(topic_id="id", stable={0: 9}, ends={0: 9}))

    assert reversing.log_ranges(ADDRESS, "t", closed=False) == (LogRange(partition=0, start=7, end=9, stable_end=9),)


@pytest.mark.parametrize(("first", "second", "empty"), [(0, 0, True), (0, 1, False), (1, 0, False)])
def test_topic_is_empty_only_if_two_readings_say_so(
    monkeypatch: pytest.MonkeyPatch, *, first: int, second: int, empty: bool
) -> None:
    """A leader that was just elected shows an older high watermark."""
    deleted: list[TopicDescription] = []

    def delete(topic: TopicDescription, **_: object) -> bool:
        deleted.append(topic)
        return True

    found = SimpleNamespace(find=lambda _: TOPIC, delete_topic_by_id=delete)
    monkeypatch.setattr(mirror_topics, "ClusterAdmin", lambda _: found)
    monkeypatch.setattr(mirror_topics, "newest_ends", lambda *_: TopicEnds(topic_id="id", stable={0: first}, ends={0: first}))
    monkeypatch.setattr(
        mirror_topics, "log_ranges", lambda *_: (LogRange(partition=0, start=0, end=second, stable_end=second),)
    )

    assert mirror_topics.delete_diverged(destination=ADDRESS, topic="t", topic_id="another") is empty
    assert deleted == ([TOPIC] if empty else [])


WEEK, DAY = {"retention.ms": "604800000"}, {"retention.ms": "86400000"}


@pytest.mark.parametrize(
    ("readings", "applied"),
    [
        ([WEEK], WEEK),  # unchanged: not read again
        ([DAY, DAY], DAY),
        ([DAY, WEEK], None),  # damaged, or from a broker that had just started
    ],
)
def test_changed_source_configs_are_applied_if_two_readings_are_equal(
    monkeypatch: pytest.MonkeyPatch, readings: list[dict[str, str]], applied: dict[str, str] | None
) -> None:
    """A stop gives them to the topic; a retention that is too short would delete its records."""
    responses, used = iter(readings), list[Mapping[str, str] | LinkEngineError]()
    admin = SimpleNamespace(effective_configs_of=lambda _: {"t": next(responses)}, topics=lambda _: [])
    monkeypatch.setattr(syncing, "ClusterAdmin", lambda _: admin)
    monkeypatch.setattr(syncing, "observe_sources", lambda *_: {"t": TOPIC})
    monkeypatch.setattr(syncing, "_follow", lambda *_, values, **__: used.append(values))
    plan = MirrorSync(
        source=ADDRESS, destination=ADDRESS, source_topic="t", source_topic_id="id", mirror_topic="t", previous=WEEK
    )

    syncing.sync_mirrors([plan], reread_after_s=0.0)

    (values,) = used
    if applied:
        assert values == applied
    else:  # partitions are added, configs are not changed
        assert isinstance(values, LinkEngineError)
        assert values.code == ErrorCode.TIMEOUT_ERROR
    assert next(responses, None) is None


@pytest.mark.parametrize(("readings", "expected"), [([DAY, DAY], DAY), ([DAY, WEEK], WEEK), ([WEEK, DAY], WEEK)])
def test_promoted_topic_gets_configs_that_two_readings_show_or_those_of_the_last_sync(
    monkeypatch: pytest.MonkeyPatch, readings: list[dict[str, str]], expected: dict[str, str]
) -> None:
    responses = iter(readings)
    monkeypatch.setattr(topics, "ClusterAdmin", lambda _: None)
    monkeypatch.setattr(topics, "read_source_configs", lambda *_, **__: next(responses))
    stop = MirrorStop(
        source=ADDRESS,
        destination=ADDRESS,
        assignments=(),
        reason=StopReason.PROMOTE,
        generation=1,
        source_topic="t",
        source_configs=WEEK,
    )

    assert topics._source_configs(stop) == expected


@pytest.mark.parametrize(
    ("released", "reported", "read_from"),
    [
        (90, 80, None),  # nothing has to be read
        (90, 90, None),
        (40, 80, 80),  # Redis was restored from a backup
        (None, 80, 80),
    ],
)
def test_end_of_a_released_lease_does_not_count_if_more_was_reported(
    monkeypatch: pytest.MonkeyPatch, released: int | None, reported: int, read_from: int | None
) -> None:
    """Groups would be moved back to it, and copied records count as foreign."""
    searched: dict[int, int] = {}

    def foreign_starts(_: object, partitions: Any, *, fences: Mapping[int, int], copied: Mapping[int, int]) -> dict[int, int]:
        searched.update({partition.partition: copied[partition.partition] for partition in partitions})
        return {}

    monkeypatch.setattr(takeover, "foreign_starts", foreign_starts)
    stop = MirrorStop(
        source=ADDRESS,
        destination=ADDRESS,
        assignments=(),
        reason=StopReason.FAILOVER,
        generation=1,
        copied=((0, reported),),
        released_ends=() if released is None else ((0, released),),
    )
    partition: Any = SimpleNamespace(partition=0)

    found = takeover.foreign_write_starts(stop, [partition], {0: 100})

    assert found == ({0: released} if read_from is None else {})
    assert searched == ({} if read_from is None else {0: read_from})
