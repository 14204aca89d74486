"""Truncate-and-restore on real clusters: what diverged is in a file, everything else is mirrored from the other side."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from console import exports
from console.actions.operations import operate_many
from console.actors import SYSTEM
from console.models import ClusterLink, LineageRange, MirrorTopic, RestoreRun
from console.tasks import overtaking, restoring, stopping
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.configs import ConfigChange, looks_like_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.tasks.grouping import commit
from tests.console.tasks.kills import phases
from tests.console.tasks.reversal import Drive, do, fresh, records, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]


@pytest.fixture(autouse=True)
def export_directory(settings: Any, tmp_path: Path) -> None:
    settings.EXPORT_DIR = str(tmp_path)


@pytest.fixture
def stopped(twin: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive) -> MirrorTopic:
    """A mirror that was failed over with all 200 records."""
    drive(lambda: len(records(destination_cluster, twin.name)) == 200)
    do(twin, E.FAILOVER)
    drive(lambda: states(twin) == [S.STOPPED])
    return twin


def restore(back: ClusterLink, name: str) -> MirrorTopic:
    """Ask for the restore of an ordinary topic."""
    rows = operate_many(link=back, names=[name], operation=E.RESTORE, by=SYSTEM, now=NOW)
    assert [row.error_code for row in rows] == [None], rows
    assert rows[0].truncation is not None  # counted beforehand
    return MirrorTopic.objects.get(link=back, name=name)


def lines(run: RestoreRun) -> list[dict[str, Any]]:
    with gzip.open(exports.path_of(run.export_name)) as file:
        return [json.loads(line) for line in file]


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
    assert [base64.b64decode(one["value"]) for one in kept] == [b"only here 1", b"only here 2"]
    assert hashlib.sha256(exports.path_of(run.export_name).read_bytes()).hexdigest() == run.export_sha256


def test_where_nothing_diverged_the_topic_itself_goes_on(
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


def test_the_topic_is_kept_where_the_one_to_be_mirrored_is_gone_before_the_deletion(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, export = stopped.name, jobs.export_records
    assert write(source_cluster, topic, "only here") == [None]
    there, here = (ClusterAdmin(one.destination.address) for one in pair)
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
    do(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert here.describe(topic).topic_id == before
    assert write(source_cluster, topic, "goes on") == [None]
    assert len(records(source_cluster, topic)) == 202


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


def test_what_a_stranger_has_kept_from_the_mirror_is_set_aside(
    twin: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The record at offset 100 was acknowledged by the source and never copied, and both sides have one there."""
    topic = twin.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    do(twin, E.PAUSE)
    drive(lambda: phases(twin) == {PartitionPhase.RELEASED})
    assert write(source_cluster, topic, "the source's 101st", "and 102nd") == [None, None]
    assert write(destination_cluster, topic, "a stranger's", user="admin") == [None]
    do(twin, E.RESUME)
    drive(lambda: states(twin) == [S.FAILED])
    do(twin, E.FAILOVER)
    drive(lambda: states(twin) == [S.STOPPED])

    row = restore(pair[1], topic)
    drive(lambda: states(row) == [S.ACTIVE])
    drive(lambda: len(records(source_cluster, topic)) == 201)

    values = [base64.b64decode(one["value"]) for one in lines(RestoreRun.objects.get())]
    assert {b"the source's 101st", b"and 102nd"} <= set(values)
    assert len(values) == 202
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_a_rehearsed_failover_is_taken_back_by_restoring_the_mirror_itself(
    stopped: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """The source went on meanwhile; what was written to the mirror is set aside."""
    topic = stopped.name
    assert write(source_cluster, topic, "production went on") == [None]
    assert write(destination_cluster, topic, "rehearsal") == [None]

    do(stopped, E.RESTORE)
    drive(lambda: states(stopped) == [S.ACTIVE])
    drive(lambda: len(records(destination_cluster, topic)) == 201)

    assert records(source_cluster, topic) == records(destination_cluster, topic)
    assert [base64.b64decode(one["value"]) for one in lines(RestoreRun.objects.get())] == [b"rehearsal"]


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

    assert [base64.b64decode(one["value"]) for one in lines(RestoreRun.objects.get())] == [b"in doubt"]
    assert not row.transition_errors.exists()


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


def test_a_worker_that_dies_before_the_topic_is_noted_as_a_mirror_leaves_the_restore_to_the_next_one(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write(source_cluster, stopped.name, "only here") == [None]
    note, left = restoring.note_mirroring, [True]

    def die_once(*arguments: Any, **options: Any) -> None:
        if left:
            left.pop()
            raise KeyboardInterrupt
        note(*arguments, **options)

    monkeypatch.setattr(restoring, "note_mirroring", die_once)
    row = restore(pair[1], stopped.name)
    with pytest.raises(KeyboardInterrupt):
        restoring.advance_restore(mirror_id=row.pk)
    assert states(row) == [S.PENDING_RESTORE_MIRROR]

    drive(lambda: states(row) == [S.ACTIVE])
    assert RestoreRun.objects.get().finished_at is not None


def test_a_restore_that_is_cut_short_leaves_a_writable_topic(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the sides have agreed on offsets; and after that, while the records that differ are being exported."""
    topic, group = stopped.name, f"{stopped.name}-readers"
    assert write(source_cluster, topic, "only here") == [None]
    own = make_its_own(pair[1], topic, group)

    row = restore(pair[1], topic)
    do(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert write(source_cluster, topic, "goes on") == [None]
    assert len(records(source_cluster, topic)) == 202

    there, export = ClusterAdmin(row.link.destination.address), jobs.export_records
    before = there.describe(topic).topic_id

    def fail_over_behind(*arguments: Any, **options: Any) -> Any:
        if states(row) == [S.PENDING_RESTORE_MIRROR]:
            do(row, E.FAILOVER)
        return export(*arguments, **options)

    monkeypatch.setattr(jobs, "export_records", fail_over_behind)
    restore(pair[1], topic)
    drive(lambda: states(row) == [S.STOPPED])

    assert row.transitions.filter(from_state=S.PENDING_RESTORE_MIRROR, event=E.FAILOVER).exists()
    assert there.describe(topic).topic_id == before
    assert write(source_cluster, topic, "and on") == [None]
    assert len(records(source_cluster, topic)) == 203
    assert (there.describe(topic).configs, there.committed([group])[0][group]) == own


def make_its_own(back: ClusterLink, topic: str, group: str) -> Any:
    """Give a source topic configs that its mirror does not have, and a group; answer both as they are then."""
    here, there = ClusterAdmin(back.destination.address), ClusterAdmin(back.source.address)
    here.change_configs(topic, ConfigChange(values={"retention.ms": "604800000", "compression.type": "zstd"}))
    there.change_configs(topic, ConfigChange(values={"retention.ms": "3600000"}))
    commit(here, group, topic, {0: 101})
    return here.describe(topic).configs, here.committed([group])[0][group]


def test_a_source_that_was_to_become_a_mirror_keeps_its_configs_and_groups_when_it_is_failed_over(
    twin: MirrorTopic, pair: Pair, drive: Drive
) -> None:
    do(twin, E.REVERSE_AND_PAUSE)
    row, there = MirrorTopic.objects.get(link=pair[1]), ClusterAdmin(pair[1].destination.address)
    own = make_its_own(pair[1], twin.name, group := f"{twin.name}-readers")
    assert states(row) == [S.PENDING_MIRROR]

    do(row, E.FAILOVER)
    drive(lambda: states(row) == [S.STOPPED])

    assert (there.describe(twin.name).configs, there.committed([group])[0][group]) == own


@pytest.mark.parametrize("step", ["delete_diverged", "setup_mirror"])
def test_a_failover_behind_the_deletion_leaves_an_open_topic_or_none(
    stopped: MirrorTopic, pair: Pair, source_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Right after the topic was deleted; and right after it was made anew, before anybody noted which one that is."""
    topic, real, left = stopped.name, getattr(jobs, step), [True]
    monkeypatch.setattr(overtaking, "GIVE_WAY_S", 0.5)
    assert write(source_cluster, topic, "only here") == [None]
    row = restore(pair[1], topic)
    there = ClusterAdmin(row.link.destination.address)
    before = there.describe(topic).topic_id

    def fail_over_behind(*arguments: Any, **options: Any) -> Any:
        answer = real(*arguments, **options)
        if left and left.pop():
            do(row, E.FAILOVER)
            stopping.advance_stop(mirror_id=row.pk)
        return answer

    monkeypatch.setattr(jobs, step, fail_over_behind)
    for _ in range(5):
        restoring.advance_restore(mirror_id=row.pk)
        stopping.advance_stop(mirror_id=row.pk)

    found = there.find(topic)
    assert (left, states(row)) == ([], [S.STOPPED])
    assert not there.denies_writes(topic)
    assert not LineageRange.objects.filter(mirror=row, closed_at=None).exists()
    if step == "delete_diverged":
        assert found is None
    else:
        assert found is not None
        assert found.topic_id == fresh(row).mirror_topic_id != before
        assert not looks_like_mirror(found.configs)
        assert write(source_cluster, topic, "goes on") == [None]
