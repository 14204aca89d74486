"""Restores whose worker crashes after it has decided to delete the topic, on real clusters: no record is lost."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.actors import SYSTEM
from console.mirrors import diverged_exports
from console.mirrors.operation_actions import operate_many
from console.models import AuditEvent, ClusterLink, MirrorTopic, RestoreRun
from console.models.mirrors import RECORDS_LOST
from console.tasks.mirrors import advance_restore
from console.workflows import divergence
from console.workflows.mirrors import PreemptedError
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.workflows.conftest import Until
from tests.console.workflows.crashing import BEFORE_DELETION, crash_once
from tests.console.workflows.reversal import Drive, lines, lose_the_fence, records, request_operation, restore, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier", "export_directory")]
S = MirrorState
Pair = tuple[ClusterLink, ClusterLink]
Decided = tuple[MirrorTopic, list[dict[str, Any]]]


def test_export_file_that_is_lost_before_the_deletion_is_written_again(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker crashes after it has completed the file and decided the deletion; then the file is deleted."""
    topic, lost = stopped.name, list[str]()

    def lose(_options: dict[str, Any]) -> None:
        lost.append(RestoreRun.objects.get().export_name)
        diverged_exports.path_of(lost[0]).unlink()

    crash_once(monkeypatch, BEFORE_DELETION, doing=lose)
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])

    run = RestoreRun.objects.get()
    assert lost == [run.export_name]
    assert [base64.b64decode(line["value"]) for line in lines(run)] == [b"only here"]


@pytest.mark.parametrize("how", ["created again", "lost its end"])
def test_records_that_the_other_side_loses_before_the_decided_deletion_are_exported(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """The worker crashes once the deletion is decided; the other side loses common records before the next worker continues."""
    topic, there = stopped.name, ClusterAdmin(pair[0].destination.address)
    before = records(source_cluster, topic)

    def lose(_options: dict[str, Any]) -> None:
        if how == "created again":
            there.delete_topic(topic)
            there.create_topic(topic, partitions=2)
        else:
            assert write(destination_cluster, topic, "where the fence was") == [None]
            lose_the_fence()

    crash_once(monkeypatch, BEFORE_DELETION, doing=lose)
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])

    crashed_worker = [(0, offset) for offset in range(100)] + [(0, 100)]
    crashed_worker += [(1, offset) for offset in range(100)] if how == "created again" else []
    kept = {(line["partition"], line["offset"]): base64.b64decode(line["value"]) for line in lines(RestoreRun.objects.get())}
    assert kept == {place: before.get(place, b"only here") for place in crashed_worker}


def test_restored_database_does_not_overwrite_an_export_file(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, until: Until
) -> None:
    """It is from before the file was complete: the topic of that name is the new mirror and has other records."""
    topic = stopped.name
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    kept = diverged_exports.path_of(RestoreRun.objects.get().export_name)
    there = ClusterAdmin(pair[1].destination.address)
    content, topic_id = kept.read_bytes(), there.describe(topic).topic_id

    unknown = {"exported_at": None, "export_name": "", "deletion_decided_at": None, "finished_at": None}
    RestoreRun.objects.update(**unknown)
    MirrorTopic.objects.filter(pk=row.pk).update(state=S.PENDING_RESTORE_MIRROR, holds_copy=False)

    def refused() -> bool:
        advance_restore(mirror_id=row.pk)  # does nothing while the finished restore's task still holds the lock
        return row.transition_errors.filter(code=ErrorCode.SIDES_DIVERGED).exists()

    until(refused)
    advance_restore(mirror_id=row.pk)

    assert kept.read_bytes() == content
    assert there.describe(topic).topic_id == topic_id


def test_delayed_deletion_does_not_block_the_restore(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A super user wrote, the file was to be written again, and then the delete request of the crashed worker arrived."""
    topic, delete = stopped.name, jobs.delete_diverged
    requests: list[dict[str, Any]] = []

    def write_late(options: dict[str, Any]) -> None:
        requests.append(options)
        assert write(source_cluster, topic, "late", user="admin") == [None]

    crash_once(monkeypatch, BEFORE_DELETION, doing=write_late)
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    for _ in range(2):
        advance_restore(mirror_id=row.pk)
    assert RestoreRun.objects.get().exported_at is None
    delete(**requests[0])
    advance_restore(mirror_id=row.pk)

    run = RestoreRun.objects.get()
    assert states(row) == [S.ACTIVE]
    assert (run.exported_at is not None, [base64.b64decode(line["value"]) for line in lines(run)]) == (True, [b"only here"])
    (alarm,) = row.transition_errors.all()
    assert (alarm.code, "was deleted by a delayed request" in alarm.message) == (RECORDS_LOST, True)


def test_failover_keeps_the_topic_if_the_cluster_refuses_the_decided_deletion(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting was changed after the restore had started. The topic is opened with all its records."""
    topic = stopped.name
    assert write(source_cluster, topic, "only here") == [None]

    def refuse(**_: Any) -> bool:
        raise LinkEngineError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")

    monkeypatch.setattr(jobs, "delete_diverged", refuse)
    row = restore(pair[1], topic)
    drive(lambda: row.transition_errors.filter(code=ErrorCode.TOPIC_DELETION_DISABLED).exists())
    assert write(source_cluster, topic, "refused") != [None]
    request_operation(row, MirrorEvent.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert records(source_cluster, topic)[0, 100] == b"only here"
    assert write(source_cluster, topic, "after the failover") == [None]
    assert RestoreRun.objects.get().deletion_decided_at is None


@pytest.fixture
def decided(
    stopped: MirrorTopic,
    pair: Pair,
    source_cluster: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> tuple[MirrorTopic, list[dict[str, Any]]]:
    """A topic whose worker crashed before the deletion. Then the export file is lost, and its directory accepts no file.

    Also returns the keywords of the deletion that the worker did not get to.
    """
    requests: list[dict[str, Any]] = []

    def lose(options: dict[str, Any]) -> None:
        requests.append(options)
        diverged_exports.path_of(RestoreRun.objects.get().export_name).unlink()
        (tmp_path / "full").write_text("not a directory")
        settings.EXPORT_DIR = str(tmp_path / "full")

    crash_once(monkeypatch, BEFORE_DELETION, doing=lose)
    assert write(source_cluster, stopped.name, "only here") == [None]
    row = restore(pair[1], stopped.name)
    advance_restore(mirror_id=row.pk)
    assert len(requests) == 1
    return row, requests


def test_failover_keeps_a_topic_whose_records_cannot_be_exported(
    decided: Decided, source_cluster: KafkaCluster, drive: Drive
) -> None:
    row, requests = decided
    before = records(source_cluster, row.name)
    RestoreRun.objects.update(deletion_decided_at=timezone.now() - divergence.LATE)

    request_operation(row, MirrorEvent.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert before[0, 100] == b"only here"
    assert records(source_cluster, row.name) == before
    assert write(source_cluster, row.name, "after the failover") == [None]
    run, event = RestoreRun.objects.get(), AuditEvent.objects.get(action="KeepDivergedTopic")
    assert (run.deletion_decided_at, run.exported_at, run.finished_at is not None) == (None, None, True)
    assert "Records cannot be exported" in event.detail["reason"]
    with pytest.raises(PreemptedError):  # the worker was only suspended
        jobs.delete_diverged(**requests[0])
    assert len(records(source_cluster, row.name)) == len(before) + 1


def test_failover_waits_while_a_deletion_that_was_requested_may_still_take_effect(
    decided: Decided, tmp_path: Path, source_cluster: KafkaCluster, drive: Drive, settings: Any
) -> None:
    row, _ = decided
    request_operation(row, MirrorEvent.FAILOVER)
    drive(lambda: row.transition_errors.filter(message__contains="the topic is kept with all its records").exists())
    assert states(row) == [S.PENDING_STOPPED]
    assert write(source_cluster, row.name, "refused") != [None]

    settings.EXPORT_DIR = str(tmp_path)
    drive(lambda: states(row) == [S.STOPPED])

    run = RestoreRun.objects.get()
    assert [base64.b64decode(line["value"]) for line in lines(run)] == [b"only here"]
    assert ClusterAdmin(row.link.destination.address).find(row.name) is None
    with pytest.raises(PreemptedError):
        divergence.redecide(run, now=NOW)


def test_restore_is_refused_if_the_cluster_deletes_no_topics(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster
) -> None:
    topic = stopped.name
    assert write(source_cluster, topic, "only here") == [None]
    pair[1].destination.deletes_topics = False
    pair[1].destination.save()

    (refused,) = operate_many(link=pair[1], names=[topic], operation=MirrorEvent.RESTORE, by=SYSTEM, now=NOW)

    assert "is disabled on cluster" in str(refused.error_message)
    assert not RestoreRun.objects.exists()
    assert write(source_cluster, topic, "still open") == [None]
