"""Stops after which a mirror's end says nothing about its source: what a later restore finds, on real clusters."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from console.models import ClusterLink, MirrorPartition, MirrorTopic, RestoreRun
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.workflows.kills import phases
from tests.console.workflows.reversal import Drive, lines, records, request_operation, restore, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier", "export_directory")]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]


@pytest.fixture
def contested(twin: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive) -> MirrorTopic:
    """A paused mirror: its source has two records that were not copied, and another producer wrote in place of the first."""
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    request_operation(twin, E.PAUSE)
    drive(lambda: phases(twin) == {PartitionPhase.RELEASED})
    assert write(source_cluster, twin.name, "the source's 101st", "and 102nd") == [None, None]
    assert write(destination_cluster, twin.name, "a foreign record", user="admin") == [None]
    return twin


@pytest.fixture
def assert_exported(
    contested: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> Callable[[], None]:
    """Restore the former source: the file has all records that the new mirror lacks. It may have more, up to all.

    How much is common is known exactly if the stop found where the foreign records begin, and otherwise not at all.
    """
    topic = contested.name

    def restored() -> None:
        before = records(source_cluster, topic)
        row = restore(pair[1], topic)
        drive(lambda: states(row) == [S.ACTIVE])
        drive(lambda: len(records(source_cluster, topic)) == 201)

        after, values = records(source_cluster, topic), exported_values(RestoreRun.objects.get())
        lacking = [value for place, value in before.items() if after.get(place) != value]
        assert sorted(lacking) == [b"and 102nd", b"the source's 101st"]
        assert set(lacking) <= set(values)
        assert len(values) in (2, 202)
        assert records(source_cluster, topic) == records(destination_cluster, topic)

    return restored


def exported_values(run: RestoreRun) -> list[bytes]:
    """Return the values of the records in the restore's export file."""
    return [base64.b64decode(line["value"]) for line in lines(run)]


def test_records_that_a_foreign_write_kept_from_being_copied_are_exported(
    contested: MirrorTopic, drive: Drive, assert_exported: Callable[[], None]
) -> None:
    request_operation(contested, E.RESUME)
    drive(lambda: states(contested) == [S.FAILED])
    request_operation(contested, E.FAILOVER)
    drive(lambda: states(contested) == [S.STOPPED])

    assert_exported()


def test_records_of_a_failed_promotion_replaced_by_a_failover_are_exported(
    contested: MirrorTopic, drive: Drive, assert_exported: Callable[[], None]
) -> None:
    """The promotion waits because of a foreign write; then the mirror is failed over."""
    request_operation(contested, E.PROMOTE)
    drive(lambda: contested.transition_errors.filter(code="FOREIGN_WRITE").exists())
    request_operation(contested, E.FAILOVER)
    drive(lambda: states(contested) == [S.STOPPED])

    assert_exported()


@pytest.mark.parametrize("more", [["the source's 101st", "and 102nd"], ["the source's 101st"], []])
def test_unnoticed_foreign_write_does_not_count_as_the_sources_record(
    twin: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    more: list[str],
) -> None:
    """Failed over while paused; the source ends after the foreign record, at the same offset, or before it."""
    topic = twin.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    request_operation(twin, E.PAUSE)
    drive(lambda: phases(twin) == {PartitionPhase.RELEASED})
    assert write(source_cluster, topic, *more) == [None] * len(more)
    assert write(destination_cluster, topic, "a foreign record", user="admin") == [None]
    request_operation(twin, E.FAILOVER)
    drive(lambda: states(twin) == [S.STOPPED])

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 201)

    run = RestoreRun.objects.get()
    assert (exported_values(run) if more else run.export_name) == ([value.encode() for value in more] or "")
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_reversal_is_not_completed_if_the_copy_had_failed(
    twin: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The source would keep its own record where its new source has a foreign record."""
    topic = twin.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    request_operation(twin, E.REVERSE_AND_START)
    assert write(destination_cluster, topic, "a foreign record", user="admin") == [None]
    assert write(source_cluster, topic, "the source's 101st") == [None]
    drive(lambda: states(twin) == [S.FAILED])
    request_operation(twin, E.FAILOVER)
    row = MirrorTopic.objects.get(link=pair[1])
    drive(lambda: row.transition_errors.filter(code="SIDES_DIVERGED").exists())
    assert states(twin, row) == [S.STOPPED, S.PENDING_MIRROR]

    request_operation(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: records(source_cluster, topic) == records(destination_cluster, topic))

    assert b"the source's 101st" in exported_values(RestoreRun.objects.get())


def test_reversal_is_not_completed_if_the_copy_lost_its_end(
    twin: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader of the new source was lost with the fence right after the stop, and an application has written since."""
    topic, stop = twin.name, jobs.stop_mirrors

    def lose_behind(*arguments: Any, **options: Any) -> Any:
        result = stop(*arguments, **options)
        assert write(destination_cluster, topic, "where the fence was") == [None]
        MirrorPartition.objects.filter(mirror=twin, partition=0).update(stopped_end=101, fenced_end=101)
        return result

    drive(lambda: len(records(destination_cluster, topic)) == 200)
    before = records(source_cluster, topic)
    monkeypatch.setattr(jobs, "stop_mirrors", lose_behind)
    request_operation(twin, E.REVERSE_AND_START)
    drive(lambda: states(twin) == [S.STOPPED])
    row = MirrorTopic.objects.get(link=pair[1])
    drive(lambda: row.transition_errors.filter(code="SIDES_DIVERGED", message__contains="lost records of partition 0").exists())

    request_operation(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])
    assert records(source_cluster, topic) == before
    assert write(source_cluster, topic, "after the failover") == [None]
