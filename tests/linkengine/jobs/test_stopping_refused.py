"""A destination that refuses the source's configs when a mirror is stopped: producers may write all the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import pytest

from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop, MirrorStopped, MirrorSync, RefusedStep
from linkengine.domain.states import StopReason
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.linkengine.jobs.stops import failover_of, stop_mirror
from tests.policies import Policy

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
Send = Callable[..., None]
WEEK_MS, MONTH_MS = 604_800_000, "2592000000"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return Policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def destination_cluster(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A destination with an alter.config.policy, for this file only."""
    directory = tmp_path_factory.mktemp("strict")
    with KafkaCluster("strict", directory=directory, extra=policy.settings).with_classes(policy.classes) as cluster:
        yield cluster


@pytest.fixture
def stop(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    source_topic: str,
    send_here: Send,
    policy: Policy,
) -> MirrorStop:
    """A failover of a mirror whose source keeps records for 30 days; the policy was set after the mirror was created."""
    policy.forget()
    there.set_configs(source_topic, {"retention.ms": MONTH_MS, "message.timestamp.type": "LogAppendTime"})
    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    send_here(source_topic, count=5)
    policy.limit(retention_ms=WEEK_MS)
    return failover_of(setup_plan, created)


def check_opened(stop: MirrorStop, stopped: MirrorStopped, here: ClusterAdmin) -> None:
    (refused,) = stopped.refused
    configs = here.describe(stop.mirror_topic).configs
    assert (refused.name, refused.value, refused.code) == ("retention.ms", MONTH_MS, ErrorCode.POLICY_VIOLATION_ERROR)
    assert f"retention.ms may be {WEEK_MS} at most" in refused.message
    assert not here.denies_writes(stop.mirror_topic)
    assert (configs["retention.ms"], configs["message.timestamp.type"]) == ("-1", "LogAppendTime")
    assert not has_mirror_configs(configs)


def blockers(stop: MirrorStop, *, refused: Collection[str] = ()) -> dict[ErrorCode, str]:
    """Return what a promotion of this mirror would wait for."""
    return dict(
        jobs.promotion_blockers(
            source=stop.source,
            destination=stop.destination,
            source_topic=stop.source_topic,
            mirror_topic=stop.mirror_topic,
            refused=refused,
        )
    )


@pytest.mark.parametrize("reason", list(StopReason))
def test_a_refused_config_does_not_keep_the_topic_closed_and_is_returned_with_value_and_reason(
    stop: MirrorStop, here: ClusterAdmin, send_here: Send, reason: StopReason
) -> None:
    stopped = stop_mirror(replace(stop, reason=reason))

    check_opened(stop, stopped, here)
    assert stopped.ends == ((0, 5), (1, 0))
    send_here(stop.mirror_topic, user="app")


def test_producers_may_write_before_configs_are_restored(stop: MirrorStop, here: ClusterAdmin) -> None:
    seen: list[tuple[bool, bool]] = []

    def record_state() -> None:
        seen.append((here.denies_writes(stop.mirror_topic), has_mirror_configs(here.describe(stop.mirror_topic).configs)))

    stop_mirror(stop, on_open=record_state)

    assert seen == [(False, True)]


def test_a_retry_succeeds_once_the_policy_allows_it(stop: MirrorStop, here: ClusterAdmin, policy: Policy) -> None:
    stop_mirror(stop)

    (again,) = jobs.restore_source_configs(stop)
    policy.forget()
    assert jobs.restore_source_configs(stop) == ()

    assert again.name == "retention.ms"
    assert here.describe(stop.mirror_topic).configs["retention.ms"] == MONTH_MS


def test_a_retry_keeps_a_value_that_a_user_has_set(stop: MirrorStop, here: ClusterAdmin, policy: Policy) -> None:
    stop_mirror(stop)
    here.set_configs(stop.mirror_topic, {"retention.ms": "3600000", "max.message.bytes": "2000000"})

    assert jobs.restore_source_configs(stop) == ()

    configs = here.describe(stop.mirror_topic).configs
    assert (configs["retention.ms"], configs["max.message.bytes"]) == ("3600000", "2000000")


@pytest.mark.parametrize("partly", [False, True])
def test_a_stop_that_crashed_after_producers_may_write_restores_the_configs(
    stop: MirrorStop, here: ClusterAdmin, policy: Policy, send_here: Send, partly: bool
) -> None:
    """The worker crashed there; producers write before the next attempt. ``partly``: it had restored some configs."""

    class CrashError(Exception):
        pass

    recorded: list[MirrorStopped] = []

    def crash() -> None:
        if partly:
            here.set_configs(stop.mirror_topic, {"compression.type": "zstd", "max.message.bytes": "1048588"})
        raise CrashError

    with pytest.raises(CrashError):
        stop_mirror(stop, on_fenced=recorded.append, on_open=crash)
    send_here(stop.mirror_topic, user="app", count=3)
    policy.forget()
    stopped = stop_mirror(replace(stop, fenced_ends=recorded[0].ends, restoring_configs=recorded[0].restores_configs))

    configs = here.describe(stop.mirror_topic).configs
    assert (stopped.ends, stopped.refused) == (((0, 5), (1, 0)), ())
    assert (configs["retention.ms"], configs["message.timestamp.type"]) == (MONTH_MS, "LogAppendTime")
    assert configs.get("compression.type") == ("zstd" if partly else None)
    assert here.offsets(stop.mirror_topic, OffsetKind.END) == {0: 9, 1: 1}


def test_each_refused_config_is_returned_separately(stop: MirrorStop, here: ClusterAdmin, policy: Policy) -> None:
    policy.limit(retention_ms=WEEK_MS, delete_retention_ms=1)
    source = {**stop.source_configs, "delete.retention.ms": "100"}

    stopped = stop_mirror(replace(stop, source_configs=source))

    assert [(step.name, step.value) for step in stopped.refused] == [("delete.retention.ms", "100"), ("retention.ms", MONTH_MS)]
    assert all(isinstance(step, RefusedStep) and step.message for step in stopped.refused)
    assert not here.denies_writes(stop.mirror_topic)


def test_a_reopened_mirror_is_writable_before_its_configs_are_restored(stop: MirrorStop, here: ClusterAdmin) -> None:
    topic_id, refused = jobs.reopen_mirror(stop)

    assert topic_id == stop.mirror_topic_id
    assert [step.name for step in refused] == ["retention.ms"]
    assert not here.denies_writes(stop.mirror_topic)


def test_a_promotion_does_not_wait_for_a_refused_config_that_is_not_needed(
    stop: MirrorStop, there: ClusterAdmin, here: ClusterAdmin, policy: Policy
) -> None:
    policy.limit(delete_retention_ms=1, retention_ms=WEEK_MS)
    there.set_configs(stop.source_topic, {"delete.retention.ms": "100", "min.compaction.lag.ms": "7"})
    plan = MirrorSync(
        source=stop.source,
        destination=stop.destination,
        source_topic=stop.source_topic,
        source_topic_id=stop.assignments[0].source_topic_id,
        mirror_topic=stop.mirror_topic,
        mirror_topic_id=stop.mirror_topic_id,
        previous=stop.source_configs,
    )

    synced = jobs.sync_mirror(plan)

    waits = blockers(stop)
    continues = blockers(stop, refused=[step.name for step in synced.refused])
    assert [(step.name, step.value) for step in synced.refused] == [("delete.retention.ms", "100")]
    assert synced.changed == ("min.compaction.lag.ms",)
    assert synced.source_configs["delete.retention.ms"] == "100"
    assert here.describe(stop.mirror_topic).configs["min.compaction.lag.ms"] == "7"
    assert ErrorCode.WAITING_FOR_CONFIGS in waits
    assert ErrorCode.WAITING_FOR_CONFIGS not in continues


def test_a_promotion_waits_for_a_refused_config_that_is_needed(
    stop: MirrorStop, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    """A user has set a retention on the mirror, and the policy refuses to reset it: records would be deleted."""
    here.set_configs(stop.mirror_topic, {"retention.ms": "3600000"})

    found = blockers(stop, refused=["retention.ms"])

    assert "retention.ms" in found[ErrorCode.WAITING_FOR_CONFIGS]
