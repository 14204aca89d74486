"""What a restore sets aside, on real clusters: nothing is deleted that is neither in the file nor on the other side."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from console import exports
from console.models import ClusterLink, MirrorPartition, MirrorTopic, RestoreRun
from console.tasks import restoring
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.tasks.reversal import Drive, lines, lose_the_fence, records, restore, states, write

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
    assert [(one["partition"], one["offset"]) for one in kept] == [(0, 100), (0, 101)]
    assert not row.transition_errors.exists()
    assert [base64.b64decode(one["value"]) for one in kept] == [b"only here 1", b"only here 2"]
    assert hashlib.sha256(exports.path_of(run.export_name).read_bytes()).hexdigest() == run.export_sha256


@pytest.mark.parametrize("written", [[], ["only here"]], ids=["in place", "made anew"])
def test_what_the_other_side_does_not_hold_from_its_beginning_on_is_set_aside_too(
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

    run, gone = RestoreRun.objects.get(), [*(before[0, offset] for offset in range(40)), *(one.encode() for one in written)]
    assert (run.in_place, run.messages_truncated, run.export_records) == (not written, len(gone), len(gone))
    assert [base64.b64decode(one["value"]) for one in lines(run)] == gone
    assert len(records(source_cluster, topic)) == 160


@pytest.mark.parametrize("written", [[], ["only here"]], ids=["in place", "made anew"])
@pytest.mark.parametrize("step", ["during the export", "behind it"])
def test_what_retention_takes_from_the_other_side_while_records_are_set_aside_is_set_aside_too(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
    written: list[str],
    step: str,
) -> None:
    """While the file is written; and when its worker had seen that it is complete, and died."""
    topic, there = stopped.name, ClusterAdmin(pair[0].destination.address)
    before = records(source_cluster, topic)
    there.trim(topic, {0: 40})
    assert write(source_cluster, topic, *written) == [None] * len(written)
    left = [60]

    def trim_behind(real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if step == "during the export" or not left:
            answer = real(*arguments, **options)
        if left:
            there.trim(topic, {0: left.pop()})
            if step == "behind it":
                raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The worker is gone.")
        return answer

    over = (jobs, "delete_diverged") if written else (restoring, "take_over")
    place = (jobs, "export_records") if step == "during the export" else over
    monkeypatch.setattr(*place, partial(trim_behind, getattr(*place)))
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: records(source_cluster, topic) == records(destination_cluster, topic))

    run, gone = RestoreRun.objects.get(), [*(before[0, offset] for offset in range(60)), *(one.encode() for one in written)]
    assert not left
    assert sorted(base64.b64decode(one["value"]) for one in lines(run)) == sorted(gone)
    assert (run.in_place, run.messages_truncated, run.export_records) == (not written, len(gone), len(gone))
    assert [one["other_start"] for one in run.points] == [60, 0]
    assert [one["offset"] for one in lines(run)] == [*range(60), *range(100, 100 + len(written))]
    assert len(records(source_cluster, topic)) == 140


def test_a_source_that_lost_records_after_they_were_copied_has_the_rest_set_aside(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unclean election dropped its last forty, and producers wrote others in their place."""
    topic, before = stopped.name, records(source_cluster, stopped.name)
    monkeypatch.setattr(jobs, "kept_up_to", lambda *_, epochs: {**dict.fromkeys(epochs, 1_000), 0: 60})

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 200)

    run = RestoreRun.objects.get()
    assert (run.in_place, run.messages_truncated) == (False, 40)
    assert [base64.b64decode(one["value"]) for one in lines(run)] == [before[0, offset] for offset in range(60, 100)]
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_records_of_a_super_user_during_the_restore_are_in_the_file_too(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One while the file is written, one when its worker had already decided that the topic goes, and died."""
    topic, export, delete = stopped.name, jobs.export_records, jobs.delete_diverged
    behind = {export: "during the export", delete: "before the deletion"}

    def write_behind(real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        value = behind.pop(real, "")
        answer = None if real is delete and value else real(*arguments, **options)
        if value:
            assert write(source_cluster, topic, value, user="admin") == [None]
        if answer is None:
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The worker is gone.")
        return answer

    monkeypatch.setattr(jobs, "export_records", partial(write_behind, export))
    monkeypatch.setattr(jobs, "delete_diverged", partial(write_behind, delete))
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 200)

    assert records(source_cluster, topic) == records(destination_cluster, topic)
    run = RestoreRun.objects.get()
    assert [base64.b64decode(one["value"]) for one in lines(run)] == [
        b"only here",
        b"during the export",
        b"before the deletion",
    ]
    assert (run.messages_truncated, run.export_records) == (3, 3)


@pytest.mark.parametrize("written", [5, 100])
def test_a_topic_that_was_created_again_is_set_aside_as_a_whole(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    written: int,
) -> None:
    """Its name alone was ever copied; also where each partition ends exactly where the other side was fenced."""
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
    assert [base64.b64decode(one["value"]).decode() for one in lines(run)] == values * 2
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_a_copy_that_lost_its_end_after_it_was_stopped_leaves_everything_to_the_file(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    """An unclean election dropped its fence, and what was copied before that; an application's records are there now."""
    topic, before = stopped.name, records(source_cluster, stopped.name)
    assert write(destination_cluster, topic, "where the fence was") == [None]
    MirrorPartition.objects.filter(mirror=stopped, partition=0).update(fenced_end=101)

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 201)

    run = RestoreRun.objects.get()
    assert (run.in_place, run.export_records) == (False, 100)
    assert [base64.b64decode(one["value"]) for one in lines(run)] == [before[0, offset] for offset in range(100)]


@pytest.mark.parametrize("written", [[], ["only here"]], ids=["in place", "made anew"])
def test_a_copy_that_loses_its_end_behind_the_agreement_takes_no_topic_with_it(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    written: list[str],
) -> None:
    """Its leader went away with the fence, and an application's record is there now: the topic here has the last copy."""
    topic, agree = stopped.name, restoring._note_agreed

    def lose_behind(*arguments: Any, **options: Any) -> MirrorTopic:
        moved = agree(*arguments, **options)
        assert write(destination_cluster, topic, "where the fence was") == [None]
        lose_the_fence()
        return moved

    monkeypatch.setattr(restoring, "_note_agreed", lose_behind)
    assert write(source_cluster, topic, *written) == [None] * len(written)
    before, here = records(source_cluster, topic), ClusterAdmin(pair[1].destination.address)
    row, topic_id = restore(pair[1], topic), here.describe(topic).topic_id
    for _ in range(2):
        restoring.advance_restore(mirror_id=row.pk)

    assert states(row) == [S.PENDING_RESTORE_MIRROR]
    (error,) = row.transition_errors.all()
    assert (error.code, "lost records of partition 0" in error.message) == (ErrorCode.SIDES_DIVERGED, True)
    assert (here.describe(topic).topic_id, records(source_cluster, topic)) == (topic_id, before)


def test_records_in_a_partition_that_was_added_meanwhile_are_set_aside_too(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, export, left = stopped.name, jobs.export_records, [True]
    here = ClusterAdmin(pair[1].destination.address)
    assert write(source_cluster, topic, "only here") == [None]

    def add_behind(*arguments: Any, **options: Any) -> Any:
        answer = export(*arguments, **options)
        if left and left.pop():
            here.add_partitions(topic, total=3)
            assert write(source_cluster, topic, "added", partition=2, user="admin") == [None]
        return answer

    monkeypatch.setattr(jobs, "export_records", add_behind)
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])

    assert [base64.b64decode(one["value"]) for one in lines(RestoreRun.objects.get())] == [b"only here", b"added"]


def test_two_sides_that_were_asked_to_follow_each_other_both_stay(stopped: MirrorTopic, pair: Pair) -> None:
    row = restore(pair[1], stopped.name)
    MirrorTopic.objects.filter(pk=stopped.pk).update(state=S.PENDING_SETUP_FOR_RESTORE)

    restoring.advance_restore(mirror_id=row.pk)

    assert states(row) == [S.PENDING_SETUP_FOR_RESTORE]
    assert row.transition_errors.filter(code=ErrorCode.WAITING_FOR_OTHER_SIDE).exists()
