"""Exports of restores, on real clusters: no record is deleted that is neither in the file nor on the other side."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from console.mirrors import diverged_exports
from console.models import ClusterLink, MirrorPartition, MirrorTopic, RestoreRun
from console.tasks.mirrors import advance_restore
from console.workflows import reverse_and_restore
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.workflows.reversal import Drive, lines, lose_the_fence, records, restore, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier", "export_directory")]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]


def test_diverged_records_are_exported_and_the_rest_is_mirrored_again(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    topic = stopped.name
    assert write(source_cluster, topic, "only here 1", "only here 2") == [None, None]
    assert write(destination_cluster, topic, "the new truth") == [None]

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 201)

    assert records(source_cluster, topic) == records(destination_cluster, topic)
    run = RestoreRun.objects.get()
    assert (run.messages_truncated, run.export_records, run.in_place) == (2, 2, False)
    assert run.finished_at is not None
    kept = lines(run)
    assert [(line["partition"], line["offset"]) for line in kept] == [(0, 100), (0, 101)]
    assert not row.transition_errors.exists()
    assert [base64.b64decode(line["value"]) for line in kept] == [b"only here 1", b"only here 2"]
    assert hashlib.sha256(diverged_exports.path_of(run.export_name).read_bytes()).hexdigest() == run.export_sha256


@pytest.mark.parametrize("written", [[], ["only here"]], ids=["in place", "made anew"])
def test_records_below_the_other_sides_log_start_are_exported(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    written: list[str],
) -> None:
    topic = stopped.name
    before = records(source_cluster, topic)
    ClusterAdmin(pair[0].destination.address).trim(topic, {0: 40})
    assert write(source_cluster, topic, *written) == [None] * len(written)

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: records(source_cluster, topic) == records(destination_cluster, topic))

    run, crashed_worker = (
        RestoreRun.objects.get(),
        [*(before[0, offset] for offset in range(40)), *(value.encode() for value in written)],
    )
    assert (run.in_place, run.messages_truncated, run.export_records) == (not written, len(crashed_worker), len(crashed_worker))
    assert [base64.b64decode(line["value"]) for line in lines(run)] == crashed_worker
    assert len(records(source_cluster, topic)) == 160


@pytest.mark.parametrize("written", [[], ["only here"]], ids=["in place", "made anew"])
@pytest.mark.parametrize("step", ["during the export", "behind it"])
def test_records_that_retention_deletes_on_the_other_side_during_the_export_are_exported(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
    written: list[str],
    step: str,
) -> None:
    """While the file is written; and after its worker has completed it and crashed."""
    topic, there = stopped.name, ClusterAdmin(pair[0].destination.address)
    before = records(source_cluster, topic)
    there.trim(topic, {0: 40})
    assert write(source_cluster, topic, *written) == [None] * len(written)
    left = [60]

    def trim_behind(real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if step == "during the export" or not left:
            response = real(*arguments, **options)
        if left:
            there.trim(topic, {0: left.pop()})
            if step == "behind it":
                raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The worker is gone.")
        return response

    over = (jobs, "delete_diverged") if written else (reverse_and_restore, "take_over")
    place = (jobs, "export_records") if step == "during the export" else over
    monkeypatch.setattr(*place, partial(trim_behind, getattr(*place)))
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: records(source_cluster, topic) == records(destination_cluster, topic))

    run, crashed_worker = (
        RestoreRun.objects.get(),
        [*(before[0, offset] for offset in range(60)), *(value.encode() for value in written)],
    )
    assert not left
    assert sorted(base64.b64decode(line["value"]) for line in lines(run)) == sorted(crashed_worker)
    assert (run.in_place, run.messages_truncated, run.export_records) == (not written, len(crashed_worker), len(crashed_worker))
    assert [point["other_start"] for point in run.points] == [60, 0]
    assert [line["offset"] for line in lines(run)] == [*range(60), *range(100, 100 + len(written))]
    assert len(records(source_cluster, topic)) == 140


def test_records_that_the_source_lost_after_they_were_copied_are_exported(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unclean leader election dropped the source's last forty records, and producers wrote others in their place."""
    topic, before = stopped.name, records(source_cluster, stopped.name)
    monkeypatch.setattr(jobs, "kept_up_to", lambda *_, epochs: {**dict.fromkeys(epochs, 1_000), 0: 60})

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 200)

    run = RestoreRun.objects.get()
    assert (run.in_place, run.messages_truncated) == (False, 40)
    assert [base64.b64decode(line["value"]) for line in lines(run)] == [before[0, offset] for offset in range(60, 100)]
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_records_that_a_super_user_writes_during_the_restore_are_exported(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the file is written, and after the deletion was decided and the worker crashed."""
    topic, export, delete = stopped.name, jobs.export_records, jobs.delete_diverged
    behind = {export: "during the export", delete: "before the deletion"}

    def write_behind(real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        value = behind.pop(real, "")
        response = None if real is delete and value else real(*arguments, **options)
        if value:
            assert write(source_cluster, topic, value, user="admin") == [None]
        if response is None:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The worker is gone.")
        return response

    monkeypatch.setattr(jobs, "export_records", partial(write_behind, export))
    monkeypatch.setattr(jobs, "delete_diverged", partial(write_behind, delete))
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 200)

    assert records(source_cluster, topic) == records(destination_cluster, topic)
    run = RestoreRun.objects.get()
    assert [base64.b64decode(line["value"]) for line in lines(run)] == [
        b"only here",
        b"during the export",
        b"before the deletion",
    ]
    assert (run.messages_truncated, run.export_records) == (3, 3)


@pytest.mark.parametrize("written", [5, 100])
def test_topic_that_was_created_anew_is_exported_completely(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    written: int,
) -> None:
    """It has only the name in common with the copy, even if each partition ends exactly at the other side's fence."""
    topic, admin = stopped.name, ClusterAdmin(pair[1].destination.address)
    admin.delete_topic(topic)
    admin.create_topic(topic, partitions=2)
    values = [f"another topic's {number}" for number in range(written)]
    for partition in (0, 1):
        assert write(source_cluster, topic, *values, partition=partition) == [None] * written

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 200)

    run = RestoreRun.objects.get()
    assert (run.messages_truncated, run.export_records, run.in_place) == (2 * written, 2 * written, False)
    assert [base64.b64decode(line["value"]).decode() for line in lines(run)] == values * 2
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_all_records_are_exported_if_the_other_side_lost_its_fence(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    """An unclean leader election dropped the fence and copied records before it; an application wrote others since."""
    topic, before = stopped.name, records(source_cluster, stopped.name)
    assert write(destination_cluster, topic, "where the fence was") == [None]
    MirrorPartition.objects.filter(mirror=stopped, partition=0).update(fenced_end=101)

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 201)

    run = RestoreRun.objects.get()
    assert (run.in_place, run.export_records) == (False, 100)
    assert [base64.b64decode(line["value"]) for line in lines(run)] == [before[0, offset] for offset in range(100)]


@pytest.mark.parametrize("written", [[], ["only here"]], ids=["in place", "made anew"])
def test_topic_is_kept_if_the_other_side_loses_its_fence_after_the_agreement(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    written: list[str],
) -> None:
    """Its leader was lost with the fence, and an application has written since: the topic here is the last copy."""
    topic, agree = stopped.name, reverse_and_restore._note_agreed

    def lose_behind(*arguments: Any, **options: Any) -> MirrorTopic:
        moved = agree(*arguments, **options)
        assert write(destination_cluster, topic, "where the fence was") == [None]
        lose_the_fence()
        return moved

    monkeypatch.setattr(reverse_and_restore, "_note_agreed", lose_behind)
    assert write(source_cluster, topic, *written) == [None] * len(written)
    before, here = records(source_cluster, topic), ClusterAdmin(pair[1].destination.address)
    row, topic_id = restore(pair[1], topic), here.describe(topic).topic_id
    for _ in range(2):
        advance_restore(mirror_id=row.pk)

    assert states(row) == [S.PENDING_RESTORE_MIRROR]
    (error,) = row.transition_errors.all()
    assert (error.code, "lost records of partition 0" in error.message) == (ErrorCode.SIDES_DIVERGED, True)
    assert (here.describe(topic).topic_id, records(source_cluster, topic)) == (topic_id, before)


def test_records_in_a_partition_added_during_the_restore_are_exported(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, export, left = stopped.name, jobs.export_records, [True]
    here = ClusterAdmin(pair[1].destination.address)
    assert write(source_cluster, topic, "only here") == [None]

    def add_behind(*arguments: Any, **options: Any) -> Any:
        response = export(*arguments, **options)
        if left and left.pop():
            here.add_partitions(topic, total=3)
            assert write(source_cluster, topic, "added", partition=2, user="admin") == [None]
        return response

    monkeypatch.setattr(jobs, "export_records", add_behind)
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])

    assert [base64.b64decode(line["value"]) for line in lines(RestoreRun.objects.get())] == [b"only here", b"added"]


def test_restore_waits_while_the_other_side_is_being_restored_too(stopped: MirrorTopic, pair: Pair) -> None:
    row = restore(pair[1], stopped.name)
    MirrorTopic.objects.filter(pk=stopped.pk).update(state=S.PENDING_SETUP_FOR_RESTORE)

    advance_restore(mirror_id=row.pk)

    assert states(row) == [S.PENDING_SETUP_FOR_RESTORE]
    assert row.transition_errors.filter(code=ErrorCode.WAITING_FOR_OTHER_SIDE).exists()
