"""Workers are killed at every step of every operation, and the next one takes the mirror to the right end.

Nothing is replaced: workers, queue, Spark and clusters are real, and the death is SIGKILL. Each test is the story of one
mirror, so that one copy serves many operations. The expected steps are named, so that one that is no longer reached is noticed.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from django.utils import timezone

from console.actions.operations import operate_many
from console.actions.transitions import apply_event
from console.actors import ENGINE, SYSTEM
from console.models import ClusterLink, MirrorTopic, RestoreRun, StateTransition, StopReport
from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.tasks.kills import Lives, after, around, phases
from tests.console.tasks.reversal import do, fresh, records, states, write

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("sent", "spark_connect_url", "transactional_db"),
]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]
SETUP = around("setup_mirror", "move", task="setup_mirror")
PROMOTION = around("sync_mirror", "write_assignments", "stop_mirror", "record-ends", "move", task="advance_stop") | after(
    "promotion_blockers", task="advance_stop"
)
FAILOVER = around("write_assignments", "stop_mirror", "record-ends", "move", task="advance_stop")
REVERSAL = (
    around("close_topic", "sync_mirror", "move", task="advance_reversal")
    | after("promotion_blockers", task="advance_reversal")
    | around("turn_mirror", "move", task="turn_into_mirror")
)
ROUND = around("write_assignments", task="reconcile_link") | after("read_news", "read_readings", task="reconcile_link")
RESTORE = around("close_topic", "export_records", "delete_diverged", "setup_mirror", "move", task="advance_restore") | after(
    "log_ranges", "find_topic", task="advance_restore"
)


def events(mirror: MirrorTopic) -> list[str]:
    return list(StateTransition.objects.filter(mirror=mirror).order_by("pk").values_list("event", flat=True))


def test_a_mirror_is_made_paused_resumed_recovered_promoted_and_deleted(
    new_mirror: MirrorTopic,
    lives: Lives,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    destination_admin: AdminClient,
) -> None:
    topic = new_mirror.name

    lives.dying_at("setup_mirror")
    lives.wait_for(lambda: states(new_mirror) == [S.ACTIVE])
    assert lives.steps() >= SETUP
    lives.dying_at()
    lives.wait_for(lambda: len(records(destination_cluster, topic)) == 200)

    do(new_mirror, E.PAUSE)
    lives.dying_at("reconcile_link")
    lives.wait_for(lambda: phases(new_mirror) == {PartitionPhase.RELEASED} and lives.steps() >= ROUND)
    assert write(source_cluster, topic, "while it is paused") == [None]
    do(new_mirror, E.RESUME)
    lives.dying_at("reconcile_link")
    lives.wait_for(lambda: len(records(destination_cluster, topic)) == 201 and lives.steps() >= ROUND)

    lives.dying_at()
    failure = {"error_code": ErrorCode.AUTHORIZATION_ERROR, "error_message": "not allowed", "error_since": NOW}
    apply_event(mirror=fresh(new_mirror), event=E.FATAL, by=ENGINE, now=NOW, **failure)
    lives.wait_for(lambda: phases(new_mirror) == {PartitionPhase.RELEASED})
    assert write(source_cluster, topic, "while it has failed") == [None]
    do(new_mirror, E.RECOVER)
    lives.dying_at("reconcile_link")
    lives.wait_for(lambda: len(records(destination_cluster, topic)) == 202 and lives.steps() >= ROUND)
    assert (states(new_mirror), fresh(new_mirror).error_code) == ([S.ACTIVE], "")

    lives.dying_at("advance_stop")
    do(new_mirror, E.PROMOTE)
    lives.wait_for(lambda: states(new_mirror) == [S.STOPPED])
    assert lives.steps() >= PROMOTION
    assert records(source_cluster, topic) == records(destination_cluster, topic)
    ends = fresh(new_mirror).partitions.order_by("partition").values_list("stopped_end", flat=True)
    assert list(ends) == [102, 100]
    assert write(destination_cluster, topic, "mine now") == [None]
    assert events(new_mirror) == ["setup-done", "pause", "resume", "fatal", "recover", "promote", "fenced"]
    assert [one.records_not_copied for one in StopReport.objects.all()] == [0]

    lives.dying_at("delete_mirror")
    do(new_mirror, E.DELETE)
    lives.wait_for(lambda: not MirrorTopic.objects.exists())
    assert lives.steps() >= around("delete_mirror", "clear_mirror", task="delete_mirror")
    assert topic not in destination_admin.list_topics(timeout=10).topics


def test_a_pair_is_reversed_there_and_back_failed_over_and_restored(
    twin: MirrorTopic, pair: Pair, lives: Lives, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    topic = twin.name
    both = (source_cluster, destination_cluster)
    lives.wait_for(lambda: len(records(destination_cluster, topic)) == 200)

    lives.dying_at("advance_reversal", "turn_into_mirror")
    do(twin, E.REVERSE_AND_START)
    other = MirrorTopic.objects.exclude(pk=twin.pk).get()
    lives.wait_for(lambda: states(twin, other) == [S.STOPPED, S.ACTIVE])
    assert lives.steps() >= REVERSAL
    assert write(source_cluster, topic, "late") != [None]
    assert write(destination_cluster, topic, "after the swap") == [None]
    lives.dying_at()
    lives.wait_for(lambda: len(records(source_cluster, topic)) == 201)

    lives.dying_at("turn_into_mirror")
    do(other, E.REVERSE_AND_PAUSE)
    lives.wait_for(lambda: states(twin, other) == [S.PAUSED, S.STOPPED])
    assert lives.steps() >= around("turn_mirror", "move", task="turn_into_mirror")
    assert write(destination_cluster, topic, "late") != [None]
    assert write(source_cluster, topic, "home again") == [None]
    do(twin, E.RESUME)
    lives.wait_for(lambda: len(records(destination_cluster, topic)) == 202)
    assert records(source_cluster, topic) == records(destination_cluster, topic)

    lives.dying_at("advance_stop")
    do(twin, E.FAILOVER)
    lives.wait_for(lambda: states(twin) == [S.STOPPED])
    assert lives.steps() >= FAILOVER
    assert [len(records(cluster, topic)) for cluster in both] == [202, 202]
    assert [write(cluster, topic, "only here") for cluster in both] == [[None], [None]]

    lives.dying_at("advance_restore")
    operate_many(link=pair[1], names=[topic], operation=E.RESTORE, by=SYSTEM, now=timezone.now())
    lives.wait_for(lambda: states(other) == [S.ACTIVE])
    lives.wait_for(lambda: len(records(source_cluster, topic)) == 203)
    assert lives.steps() >= RESTORE
    assert records(source_cluster, topic) == records(destination_cluster, topic)
    run = RestoreRun.objects.get()
    assert (run.export_records, run.messages_truncated, run.in_place) == (1, 1, False)
    assert [one.name for one in lives.exports.iterdir()] == [run.export_name]
