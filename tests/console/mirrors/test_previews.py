"""Previews of operations."""

from __future__ import annotations

import pytest

from console.mirrors.operation_queries import preview
from console.models import ClusterLink, GroupOffset, LinkConfig, MirrorPartition, MirrorTopic, SyncedGroup
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeMirror

E = MirrorEvent


def enable_offset_sync(link: ClusterLink, mirror: MirrorTopic) -> MirrorTopic:
    """Turn on consumer offset sync; return the mirror with the link configs reloaded."""
    LinkConfig.objects.create(link=link, name="consumer.offset.sync.enable", value="true")
    return MirrorTopic.objects.get(pk=mirror.pk)


def test_failover_preview_has_records_groups_and_configs(mirror: MirrorTopic, link: ClusterLink) -> None:
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(source_end=15)
    mirror = enable_offset_sync(link, mirror)
    mirror.source_configs = {"retention.ms": "99000", "cleanup.policy": "delete"}
    group = SyncedGroup.objects.create(link=link, name="g", destination_name="g", status="SYNCED", listed_at=NOW)
    for partition, offset in ((0, 7), (1, 14)):
        GroupOffset.objects.create(
            group=group, mirror=mirror, partition=partition, source_offset=offset, target=offset, outcome="EQUAL"
        )

    result = preview(mirror, E.FAILOVER)

    assert (result.allowed, result.reason, result.state_after, result.records_at_risk) == (True, "", "PENDING_STOPPED", 5)
    assert [(row.group, row.partition, row.offset, row.clamped_to) for row in result.groups_clamped] == [("g", 1, 14, 10)]
    assert result.configs_to_change["retention.ms"] == "99000"
    assert result.configs_to_change["compression.type"] is None


def test_failover_preview_without_offset_sync_clamps_no_group(mirror: MirrorTopic, link: ClusterLink) -> None:
    group = SyncedGroup.objects.create(link=link, name="g", destination_name="g", status="WAITING", listed_at=NOW)
    GroupOffset.objects.create(group=group, mirror=mirror, partition=1, source_offset=14, target=14, outcome="EQUAL")

    assert preview(mirror, E.FAILOVER).groups_clamped == ()


@pytest.mark.parametrize("state", [MirrorState.PENDING_MIRROR, MirrorState.PENDING_SETUP_FOR_RESTORE])
def test_failover_preview_of_a_becoming_mirror_changes_nothing(
    make_mirror: MakeMirror, link: ClusterLink, state: MirrorState
) -> None:
    mirror = enable_offset_sync(link, make_mirror(state=state, source_configs={"retention.ms": "99000"}))
    group = SyncedGroup.objects.create(link=link, name="g", destination_name="g", status="SYNCED", listed_at=NOW)
    GroupOffset.objects.create(group=group, mirror=mirror, partition=1, source_offset=99, target=99, outcome="EQUAL")

    result = preview(mirror, E.FAILOVER)

    assert (result.allowed, result.groups_clamped, result.configs_to_change) == (True, (), {})


def test_preview_of_unknown_lag_is_none(mirror: MirrorTopic) -> None:
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(source_end=None)

    assert preview(mirror, E.FAILOVER).records_at_risk is None
    assert (preview(mirror, E.PROMOTE).records_at_risk, preview(mirror, E.PROMOTE).records_to_copy) == (0, None)


@pytest.mark.parametrize(
    ("operation", "at_risk", "to_copy"),
    [
        (E.FAILOVER, 5, 0),
        (E.PROMOTE, 0, 5),
        (E.REVERSE_AND_START, 0, 5),
        (E.REVERSE_AND_PAUSE, 0, 5),
        (E.RESTORE, None, 0),  # records written after mirroring stopped are not counted
        (E.DELETE, 16, 0),
        (E.PAUSE, 0, 0),
        (E.RESUME, 0, 0),
        (E.RECOVER, 0, 0),
    ],
)
def test_preview_has_records_at_risk_and_records_to_copy(
    mirror: MirrorTopic, operation: MirrorEvent, at_risk: int | None, to_copy: int
) -> None:
    mirror.partitions.update(mirror_start=2)
    mirror.partitions.filter(partition=1).update(source_end=15)

    result = preview(mirror, operation)

    assert (result.records_at_risk, result.records_to_copy) == (at_risk, to_copy)


def test_records_at_risk_of_deleting_a_writable_topic_are_unknown(make_mirror: MakeMirror) -> None:
    mirror = make_mirror(state=MirrorState.STOPPED)
    mirror.partitions.update(mirror_start=0)

    assert preview(mirror, E.DELETE).records_at_risk is None


def test_preview_of_an_impossible_operation_has_a_reason(mirror: MirrorTopic) -> None:
    result = preview(mirror, E.RESUME)

    assert not result.allowed
    assert "Cannot resume" in result.reason
    assert result.state_after == ""


def test_preview_of_a_promotion_with_a_closed_gate_has_a_reason(mirror: MirrorTopic, link: ClusterLink) -> None:
    LinkConfig.objects.create(link=link, name="migration.gate.enable", value="true")
    fresh = MirrorTopic.objects.get(pk=mirror.pk)

    result = preview(fresh, E.PROMOTE)

    assert (result.allowed, "has not been run yet" in result.reason) == (False, True)
    assert preview(fresh, E.FAILOVER).allowed


def test_preview_of_a_pause_has_no_risk(mirror: MirrorTopic) -> None:
    result = preview(mirror, E.PAUSE)

    assert (result.records_at_risk, result.groups_clamped, result.configs_to_change) == (0, (), {})
