"""Truncate-and-restore on real clusters: diverged records are exported, all others are mirrored from the other side."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from confluent_kafka import Producer

from console.models import ClusterLink, LineageRange, MirrorTopic, RestoreRun
from console.tasks.mirrors import advance_restore, advance_stop
from console.workflows import mirrors, reverse_and_restore
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.configs import ConfigChange, has_mirror_configs
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.workflows.crashing import crash_once
from tests.console.workflows.grouping import commit
from tests.console.workflows.reversal import Drive, fresh, lines, records, request_operation, restore, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier", "export_directory")]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]


def test_topic_is_taken_over_in_place_if_nothing_diverged(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    topic = stopped.name
    assert write(destination_cluster, topic, "new") == [None]

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 201)

    assert records(source_cluster, topic) == records(destination_cluster, topic)
    run = RestoreRun.objects.get()
    assert (run.in_place, run.messages_truncated, run.export_name) == (True, 0, "")


@pytest.mark.parametrize(
    ("written", "in_place"),
    [((), True), (("only here",), False)],
    ids=["nothing written", "one record written"],
)
def test_restore_after_a_reversal_that_stayed_paused_deletes_the_topic_only_if_it_has_other_records(
    twin: MirrorTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
    written: tuple[str, ...],
    in_place: bool,
) -> None:
    """The former source has its takeover marker and copied nothing since, so no leader epoch confirms what it holds."""
    topic = twin.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    request_operation(twin, E.REVERSE_AND_PAUSE)
    other = MirrorTopic.objects.exclude(link=twin.link_id).get(name=topic)
    drive(lambda: states(twin, other) == [S.STOPPED, S.PAUSED])
    assert write(destination_cluster, topic, *written) == [None for _ in written]
    request_operation(other, E.FAILOVER)
    drive(lambda: states(other) == [S.STOPPED])
    before = ClusterAdmin(twin.link.destination.address).describe(topic).topic_id

    request_operation(twin, E.RESTORE)
    drive(lambda: states(twin) == [S.ACTIVE])
    assert write(source_cluster, topic, "after the restore") == [None]
    drive(lambda: records(destination_cluster, topic) == records(source_cluster, topic))

    run = RestoreRun.objects.get()
    assert (run.in_place, run.messages_truncated) == (in_place, len(written))
    assert (ClusterAdmin(twin.link.destination.address).describe(topic).topic_id == before) == in_place
    assert [base64.b64decode(line["value"]).decode() for line in (lines(run) if written else ())] == list(written)
    assert len(records(source_cluster, topic)) == 201


def test_topic_is_kept_if_the_other_side_was_deleted_before_it(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, export = stopped.name, jobs.export_records
    assert write(source_cluster, topic, "only here") == [None]
    there, here = (ClusterAdmin(side.destination.address) for side in pair)
    before = here.describe(topic).topic_id

    def delete_behind(*arguments: Any, **options: Any) -> Any:
        counts = export(*arguments, **options)
        there.delete_topic(topic)
        return counts

    monkeypatch.setattr(jobs, "export_records", delete_behind)
    row = restore(pair[1], topic)
    drive(lambda: row.transition_errors.filter(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR).exists())
    assert (states(row), here.describe(topic).topic_id) == ([S.PENDING_RESTORE_MIRROR], before)

    there.create_topic(topic, partitions=2)
    drive(lambda: row.transition_errors.filter(code=ErrorCode.SIDES_DIVERGED).exists())
    request_operation(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert here.describe(topic).topic_id == before
    assert write(source_cluster, topic, "after the failover") == [None]
    assert len(records(source_cluster, topic)) == 202


def test_failover_is_reverted_by_restoring_the_mirror_itself(
    stopped: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The source was written to in the meantime; records written to the mirror are exported."""
    topic = stopped.name
    assert write(source_cluster, topic, "written during the failover") == [None]
    assert write(destination_cluster, topic, "rehearsal") == [None]

    request_operation(stopped, E.RESTORE)
    drive(lambda: states(stopped) == [S.ACTIVE])
    drive(lambda: len(records(destination_cluster, topic)) == 201)

    assert records(source_cluster, topic) == records(destination_cluster, topic)
    assert [base64.b64decode(line["value"]) for line in lines(RestoreRun.objects.get())] == [b"rehearsal"]


def test_a_restore_waits_for_an_open_transaction_and_its_records_are_in_the_file(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive
) -> None:
    topic = stopped.name
    producer = Producer({**source_cluster.client("admin"), "transactional.id": f"{topic}-open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "in doubt", partition=0)
    assert producer.flush(60) == 0

    row = restore(pair[1], topic)
    drive(lambda: row.transition_errors.filter(code="WAITING_FOR_TRANSACTIONS").exists())
    assert states(row) == [S.PENDING_SETUP_FOR_RESTORE]
    producer.commit_transaction(60)
    drive(lambda: states(row) == [S.ACTIVE])

    assert [base64.b64decode(line["value"]) for line in lines(RestoreRun.objects.get())] == [b"in doubt"]
    assert not row.transition_errors.exists()


def test_next_worker_completes_a_restore_after_a_crash_before_the_mirror_is_stored(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write(source_cluster, stopped.name, "only here") == [None]
    crash_once(monkeypatch, (reverse_and_restore, "note_mirroring"), error=KeyboardInterrupt)
    row = restore(pair[1], stopped.name)
    with pytest.raises(KeyboardInterrupt):
        advance_restore(mirror_id=row.pk)
    assert states(row) == [S.PENDING_RESTORE_MIRROR]

    drive(lambda: states(row) == [S.ACTIVE])
    assert RestoreRun.objects.get().finished_at is not None


def test_markers_of_an_interrupted_takeover_do_not_count_as_writes(
    stopped: MirrorTopic, pair: Pair, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_once(monkeypatch, (reverse_and_restore, "note_mirroring"), error=KeyboardInterrupt)
    row = restore(pair[1], stopped.name)
    with pytest.raises(KeyboardInterrupt):
        advance_restore(mirror_id=row.pk)
    advance_restore(mirror_id=row.pk)

    run = RestoreRun.objects.get()
    assert states(row) == [S.ACTIVE]
    assert (run.in_place, run.messages_truncated, run.export_name) == (True, 0, "")
    assert not row.transition_errors.exists()


def test_failover_during_a_restore_leaves_a_writable_topic(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the sides have agreed on offsets; and after that, while diverged records are exported."""
    topic, group = stopped.name, f"{stopped.name}-readers"
    assert write(source_cluster, topic, "only here") == [None]
    own = set_own_configs_and_group(pair[1], topic, group)

    row = restore(pair[1], topic)
    request_operation(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert write(source_cluster, topic, "after the first failover") == [None]
    assert len(records(source_cluster, topic)) == 202

    there, export = ClusterAdmin(row.link.destination.address), jobs.export_records
    before = there.describe(topic).topic_id

    def fail_over_behind(*arguments: Any, **options: Any) -> Any:
        if states(row) == [S.PENDING_RESTORE_MIRROR]:
            request_operation(row, E.FAILOVER)
        return export(*arguments, **options)

    monkeypatch.setattr(jobs, "export_records", fail_over_behind)
    restore(pair[1], topic)
    drive(lambda: states(row) == [S.STOPPED])

    assert row.transitions.filter(from_state=S.PENDING_RESTORE_MIRROR, event=E.FAILOVER).exists()
    assert there.describe(topic).topic_id == before
    assert write(source_cluster, topic, "after the second failover") == [None]
    assert len(records(source_cluster, topic)) == 203
    assert (there.describe(topic).configs, there.committed([group])[0][group]) == own


def set_own_configs_and_group(back: ClusterLink, topic: str, group: str) -> Any:
    """Set configs that the mirror does not have on a source topic, and commit a group's offset; return both."""
    assert back.source is not None
    here, there = ClusterAdmin(back.destination.address), ClusterAdmin(back.source.address)
    here.change_configs(topic, ConfigChange(values={"retention.ms": "604800000", "compression.type": "zstd"}))
    there.change_configs(topic, ConfigChange(values={"retention.ms": "3600000"}))
    commit(here, group, topic, {0: 101})
    return here.describe(topic).configs, here.committed([group])[0][group]


def test_source_that_fails_over_during_a_reversal_keeps_its_configs_and_groups(
    twin: MirrorTopic, pair: Pair, drive: Drive
) -> None:
    request_operation(twin, E.REVERSE_AND_PAUSE)
    row, there = MirrorTopic.objects.get(link=pair[1]), ClusterAdmin(pair[1].destination.address)
    own = set_own_configs_and_group(pair[1], twin.name, group := f"{twin.name}-readers")
    assert states(row) == [S.PENDING_MIRROR]

    request_operation(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert (there.describe(twin.name).configs, there.committed([group])[0][group]) == own


@pytest.mark.parametrize("step", ["delete_diverged", "set_up_mirror_topic"])
def test_failover_after_the_deletion_leaves_a_writable_topic_or_none(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Right after the topic was deleted; and right after it was created anew, before its id was stored."""
    topic, real, left = stopped.name, getattr(jobs, step), [True]
    monkeypatch.setattr(mirrors, "PREEMPTION_TIMEOUT_S", 0.5)
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    there = ClusterAdmin(row.link.destination.address)
    before = there.describe(topic).topic_id

    def fail_over_behind(*arguments: Any, **options: Any) -> Any:
        response = real(*arguments, **options)
        if left and left.pop():
            request_operation(row, E.FAILOVER)
            advance_stop(mirror_id=row.pk)
        return response

    monkeypatch.setattr(jobs, step, fail_over_behind)
    for _ in range(5):
        advance_restore(mirror_id=row.pk)
        advance_stop(mirror_id=row.pk)

    found = there.find(topic)
    assert (left, states(row)) == ([], [S.STOPPED])
    assert not there.denies_writes(topic)
    assert not LineageRange.objects.filter(mirror=row, closed_at=None).exists()
    if step == "delete_diverged":
        assert found is None
    else:
        assert found is not None
        assert found.topic_id == fresh(row).mirror_topic_id != before
        assert not has_mirror_configs(found.configs)
        assert write(source_cluster, topic, "after the failover") == [None]
