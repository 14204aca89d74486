"""Workers are killed at every step of every operation, and the next worker completes the operation.

Nothing is replaced: workers, queue, Spark and clusters are real, and the crash is a SIGKILL. Each test takes a mirror through
many operations, so that a single copy serves all of them. The expected steps are listed, so that a step that is no longer
reached is noticed.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from django.utils import timezone

from console.actors import ENGINE, SYSTEM
from console.mirrors.operation_actions import operate_many
from console.mirrors.transitions import apply_event
from console.models import ClusterLink, MirrorTopic, RestoreRun, StateTransition, StopReport
from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.kills import CrashingWorkers, after, around, phases
from tests.console.workflows.reversal import fresh, records, request_operation, states, write

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("sent", "spark_connect_url", "transactional_db"),
]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]
SETUP = around("set_up_mirror_topic", "move", task="setup_mirror")
PROMOTION = around("sync_mirror", "write_assignments", "stop_mirrors", "record-ends", "move", task="advance_stop") | after(
    "promotion_blockers", task="advance_stop"
)
FAILOVER = around("write_assignments", "stop_mirrors", "record-ends", "move", task="advance_stop")
REVERSAL = (
    around("close_topic", "sync_mirror", "move", task="advance_reversal")
    | after("promotion_blockers", task="advance_reversal")
    | around("take_over_mirror", "move", task="take_over_as_mirror")
)
ROUND = around("write_assignments", task="reconcile_link") | after("read_news", "read_readings", task="reconcile_link")
RESTORE = around(
    "close_topic", "export_records", "delete_diverged", "set_up_mirror_topic", "move", task="advance_restore"
) | after("log_ranges", "find_topic", task="advance_restore")


def events(mirror: MirrorTopic) -> list[str]:
    return list(StateTransition.objects.filter(mirror=mirror).order_by("pk").values_list("event", flat=True))


def test_mirror_survives_worker_crashes_from_setup_through_pause_recover_and_promote_to_deletion(
    new_mirror: MirrorTopic,
    crashing_workers: CrashingWorkers,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    destination_admin: AdminClient,
) -> None:
    topic = new_mirror.name

    crashing_workers.crash_at("setup_mirror")
    crashing_workers.wait_for(lambda: states(new_mirror) == [S.ACTIVE])
    assert crashing_workers.steps() >= SETUP
    crashing_workers.crash_at()
    crashing_workers.wait_for(lambda: len(records(destination_cluster, topic)) == 200)

    request_operation(new_mirror, E.PAUSE)
    crashing_workers.crash_at("reconcile_link")
    crashing_workers.wait_for(lambda: phases(new_mirror) == {PartitionPhase.RELEASED} and crashing_workers.steps() >= ROUND)
    assert write(source_cluster, topic, "while it is paused") == [None]
    request_operation(new_mirror, E.RESUME)
    crashing_workers.crash_at("reconcile_link")
    crashing_workers.wait_for(lambda: len(records(destination_cluster, topic)) == 201 and crashing_workers.steps() >= ROUND)

    crashing_workers.crash_at()
    apply_event(
        mirror=fresh(new_mirror),
        event=E.FATAL,
        by=ENGINE,
        now=NOW,
        error_code=ErrorCode.AUTHORIZATION_ERROR,
        error_message="not allowed",
        error_since=NOW,
    )
    crashing_workers.wait_for(lambda: phases(new_mirror) == {PartitionPhase.RELEASED})
    assert write(source_cluster, topic, "while it has failed") == [None]
    request_operation(new_mirror, E.RECOVER)
    crashing_workers.crash_at("reconcile_link")
    crashing_workers.wait_for(lambda: len(records(destination_cluster, topic)) == 202 and crashing_workers.steps() >= ROUND)
    assert (states(new_mirror), fresh(new_mirror).error_code) == ([S.ACTIVE], "")

    crashing_workers.crash_at("advance_stop")
    request_operation(new_mirror, E.PROMOTE)
    crashing_workers.wait_for(lambda: states(new_mirror) == [S.STOPPED])
    assert crashing_workers.steps() >= PROMOTION
    assert records(source_cluster, topic) == records(destination_cluster, topic)
    ends = fresh(new_mirror).partitions.order_by("partition").values_list("stopped_end", flat=True)
    assert list(ends) == [102, 100]
    assert write(destination_cluster, topic, "mine now") == [None]
    assert events(new_mirror) == ["setup-done", "pause", "resume", "fatal", "recover", "promote", "fenced"]
    assert [report.records_not_copied for report in StopReport.objects.all()] == [0]

    crashing_workers.crash_at("delete_mirror")
    request_operation(new_mirror, E.DELETE)
    crashing_workers.wait_for(lambda: not MirrorTopic.objects.exists())
    assert crashing_workers.steps() >= around("delete_mirror_topic", "clear_mirror", task="delete_mirror")
    assert topic not in destination_admin.list_topics(timeout=10).topics


def test_pair_survives_worker_crashes_while_it_is_reversed_twice_failed_over_and_restored(
    twin: MirrorTopic,
    pair: Pair,
    crashing_workers: CrashingWorkers,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    topic = twin.name
    both = (source_cluster, destination_cluster)
    crashing_workers.wait_for(lambda: len(records(destination_cluster, topic)) == 200)

    crashing_workers.crash_at("advance_reversal", "take_over_as_mirror")
    request_operation(twin, E.REVERSE_AND_START)
    other = MirrorTopic.objects.exclude(pk=twin.pk).get()
    crashing_workers.wait_for(lambda: states(twin, other) == [S.STOPPED, S.ACTIVE])
    assert crashing_workers.steps() >= REVERSAL
    assert write(source_cluster, topic, "late") != [None]
    assert write(destination_cluster, topic, "after the swap") == [None]
    crashing_workers.crash_at()
    crashing_workers.wait_for(lambda: len(records(source_cluster, topic)) == 201)

    crashing_workers.crash_at("take_over_as_mirror")
    request_operation(other, E.REVERSE_AND_PAUSE)
    crashing_workers.wait_for(lambda: states(twin, other) == [S.PAUSED, S.STOPPED])
    assert crashing_workers.steps() >= around("take_over_mirror", "move", task="take_over_as_mirror")
    assert write(destination_cluster, topic, "late") != [None]
    assert write(source_cluster, topic, "home again") == [None]
    request_operation(twin, E.RESUME)
    crashing_workers.wait_for(lambda: len(records(destination_cluster, topic)) == 202)
    assert records(source_cluster, topic) == records(destination_cluster, topic)

    crashing_workers.crash_at("advance_stop")
    request_operation(twin, E.FAILOVER)
    crashing_workers.wait_for(lambda: states(twin) == [S.STOPPED])
    assert crashing_workers.steps() >= FAILOVER
    assert [len(records(cluster, topic)) for cluster in both] == [202, 202]
    assert [write(cluster, topic, "only here") for cluster in both] == [[None], [None]]

    crashing_workers.crash_at("advance_restore")
    operate_many(link=pair[1], names=[topic], operation=E.RESTORE, by=SYSTEM, now=timezone.now())
    crashing_workers.wait_for(lambda: states(other) == [S.ACTIVE])
    crashing_workers.wait_for(lambda: len(records(source_cluster, topic)) == 203)
    assert crashing_workers.steps() >= RESTORE
    assert records(source_cluster, topic) == records(destination_cluster, topic)
    run = RestoreRun.objects.get()
    assert (run.export_records, run.messages_truncated, run.in_place) == (1, 1, False)
    assert [file.name for file in crashing_workers.exports.iterdir()] == [run.export_name]
