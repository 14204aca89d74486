"""A stop whose end says nothing about the source: what a restore finds out afterwards on real clusters."""

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
from tests.console.tasks.kills import phases
from tests.console.tasks.reversal import Drive, do, lines, records, restore, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier", "export_directory")]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]


@pytest.fixture
def contested(twin: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive) -> MirrorTopic:
    """A paused mirror: its source has two records more than were copied, and a stranger has one in place of the first."""
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    do(twin, E.PAUSE)
    drive(lambda: phases(twin) == {PartitionPhase.RELEASED})
    assert write(source_cluster, twin.name, "the source's 101st", "and 102nd") == [None, None]
    assert write(destination_cluster, twin.name, "a stranger's", user="admin") == [None]
    return twin


@pytest.fixture
def assert_set_aside(
    contested: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> Callable[[], None]:
    """Restore the former source: all that it holds is in the file, with the records that were acknowledged and never copied."""
    topic = contested.name

    def restored() -> None:
        row = restore(pair[1], topic)
        drive(lambda: states(row) == [S.ACTIVE])
        drive(lambda: len(records(source_cluster, topic)) == 201)

        values = set_aside(RestoreRun.objects.get())
        assert {b"the source's 101st", b"and 102nd"} <= set(values)
        assert len(values) == 202
        assert records(source_cluster, topic) == records(destination_cluster, topic)

    return restored


def set_aside(run: RestoreRun) -> list[bytes]:
    """Answer the values of the records that the restore has put into its file."""
    return [base64.b64decode(one["value"]) for one in lines(run)]


def test_what_a_stranger_has_kept_from_a_mirror_that_failed_is_set_aside(
    contested: MirrorTopic, drive: Drive, assert_set_aside: Callable[[], None]
) -> None:
    do(contested, E.RESUME)
    drive(lambda: states(contested) == [S.FAILED])
    do(contested, E.FAILOVER)
    drive(lambda: states(contested) == [S.STOPPED])

    assert_set_aside()


def test_a_promotion_whose_copier_gave_up_and_that_was_overruled_says_nothing_of_its_source(
    contested: MirrorTopic, drive: Drive, assert_set_aside: Callable[[], None]
) -> None:
    """The promotion waits, for the copier has found a stranger's record; a failover overrules it."""
    do(contested, E.PROMOTE)
    drive(lambda: contested.transition_errors.filter(code="FOREIGN_WRITE").exists())
    do(contested, E.FAILOVER)
    drive(lambda: states(contested) == [S.STOPPED])

    assert_set_aside()


@pytest.mark.parametrize("more", [["the source's 101st", "and 102nd"], ["the source's 101st"], []])
def test_what_a_stranger_wrote_unnoticed_is_not_taken_for_the_sources(
    twin: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    more: list[str],
) -> None:
    """Failed over right from the pause; then the source ends behind the stranger's record, where it does, or before it."""
    topic = twin.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    do(twin, E.PAUSE)
    drive(lambda: phases(twin) == {PartitionPhase.RELEASED})
    assert write(source_cluster, topic, *more) == [None] * len(more)
    assert write(destination_cluster, topic, "a stranger's", user="admin") == [None]
    do(twin, E.FAILOVER)
    drive(lambda: states(twin) == [S.STOPPED])

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 201)

    run = RestoreRun.objects.get()
    assert (set_aside(run) if more else run.export_name) == ([one.encode() for one in more] or "")
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_a_reversal_is_not_completed_behind_a_copy_that_had_failed(
    twin: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """Its source would keep its own record where its new source has a stranger's."""
    topic = twin.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    do(twin, E.REVERSE_AND_START)
    assert write(destination_cluster, topic, "a stranger's", user="admin") == [None]
    assert write(source_cluster, topic, "the source's 101st") == [None]
    drive(lambda: states(twin) == [S.FAILED])
    do(twin, E.FAILOVER)
    row = MirrorTopic.objects.get(link=pair[1])
    drive(lambda: row.transition_errors.filter(code="SIDES_DIVERGED").exists())
    assert states(twin, row) == [S.STOPPED, S.PENDING_MIRROR]

    do(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: records(source_cluster, topic) == records(destination_cluster, topic))

    assert b"the source's 101st" in set_aside(RestoreRun.objects.get())


def test_a_reversal_is_not_completed_behind_a_copy_that_lost_its_end(
    twin: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its new source's leader went away with the fence right after the stop, and an application's record is there now."""
    topic, stop = twin.name, jobs.stop_mirror

    def lose_behind(*arguments: Any, **options: Any) -> Any:
        answer = stop(*arguments, **options)
        assert write(destination_cluster, topic, "where the fence was") == [None]
        MirrorPartition.objects.filter(mirror=twin, partition=0).update(stopped_end=101, fenced_end=101)
        return answer

    drive(lambda: len(records(destination_cluster, topic)) == 200)
    before = records(source_cluster, topic)
    monkeypatch.setattr(jobs, "stop_mirror", lose_behind)
    do(twin, E.REVERSE_AND_START)
    drive(lambda: states(twin) == [S.STOPPED])
    row = MirrorTopic.objects.get(link=pair[1])
    drive(lambda: row.transition_errors.filter(code="SIDES_DIVERGED", message__contains="lost records of partition 0").exists())

    do(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])
    assert records(source_cluster, topic) == before
    assert write(source_cluster, topic, "it goes on here") == [None]
