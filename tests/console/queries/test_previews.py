"""What an operation would do, told before it is done."""

from __future__ import annotations

import pytest

from console.models import ClusterLink, GroupOffset, LinkConfig, MirrorPartition, MirrorTopic, SyncedGroup
from console.queries.previews import preview
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeMirror

E = MirrorEvent


def carry_over(link: ClusterLink, mirror: MirrorTopic) -> MirrorTopic:
    """Have the link carry offsets over; answer the mirror with its configs read anew."""
    LinkConfig.objects.create(link=link, name="consumer.offset.sync.enable", value="true")
    return MirrorTopic.objects.get(pk=mirror.pk)


def test_a_failover_tells_records_groups_and_configs(mirror: MirrorTopic, link: ClusterLink) -> None:
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(source_end=15)
    mirror = carry_over(link, mirror)
    mirror.source_configs = {"retention.ms": "99000", "cleanup.policy": "delete"}
    group = SyncedGroup.objects.create(link=link, name="g", destination_name="g", status="SYNCED", listed_at=NOW)
    for partition, offset in ((0, 7), (1, 14)):
        GroupOffset.objects.create(
            group=group, mirror=mirror, partition=partition, source_offset=offset, target=offset, outcome="EQUAL"
        )

    told = preview(mirror, E.FAILOVER)

    assert (told.allowed, told.reason, told.state_after, told.records_at_risk) == (True, "", "PENDING_STOPPED", 5)
    assert [(one.group, one.partition, one.offset, one.clamped_to) for one in told.groups_clamped] == [("g", 1, 14, 10)]
    assert told.configs_to_change["retention.ms"] == "99000"
    assert told.configs_to_change["compression.type"] is None


def test_a_link_that_carries_no_offsets_over_sets_no_group_back(mirror: MirrorTopic, link: ClusterLink) -> None:
    group = SyncedGroup.objects.create(link=link, name="g", destination_name="g", status="WAITING", listed_at=NOW)
    GroupOffset.objects.create(group=group, mirror=mirror, partition=1, source_offset=14, target=14, outcome="EQUAL")

    assert preview(mirror, E.FAILOVER).groups_clamped == ()


@pytest.mark.parametrize("state", [MirrorState.PENDING_MIRROR, MirrorState.PENDING_SETUP_FOR_RESTORE])
def test_a_topic_that_is_not_a_mirror_yet_keeps_its_configs_and_groups(
    make_mirror: MakeMirror, link: ClusterLink, state: MirrorState
) -> None:
    mirror = carry_over(link, make_mirror(state=state, source_configs={"retention.ms": "99000"}))
    group = SyncedGroup.objects.create(link=link, name="g", destination_name="g", status="SYNCED", listed_at=NOW)
    GroupOffset.objects.create(group=group, mirror=mirror, partition=1, source_offset=99, target=99, outcome="EQUAL")

    told = preview(mirror, E.FAILOVER)

    assert (told.allowed, told.groups_clamped, told.configs_to_change) == (True, (), {})


def test_an_unknown_lag_is_not_nothing(mirror: MirrorTopic) -> None:
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
        (E.RESTORE, None, 0),  # nobody has counted what was written past us
        (E.DELETE, 16, 0),
        (E.PAUSE, 0, 0),
        (E.RESUME, 0, 0),
        (E.RECOVER, 0, 0),
    ],
)
def test_every_operation_tells_what_it_puts_at_risk_and_what_it_copies_first(
    mirror: MirrorTopic, operation: MirrorEvent, at_risk: int | None, to_copy: int
) -> None:
    mirror.partitions.update(mirror_start=2)
    mirror.partitions.filter(partition=1).update(source_end=15)

    told = preview(mirror, operation)

    assert (told.records_at_risk, told.records_to_copy) == (at_risk, to_copy)


def test_what_a_writable_topic_holds_is_not_known_any_more(make_mirror: MakeMirror) -> None:
    mirror = make_mirror(state=MirrorState.STOPPED)
    mirror.partitions.update(mirror_start=0)

    assert preview(mirror, E.DELETE).records_at_risk is None


def test_what_is_refused_says_why(mirror: MirrorTopic) -> None:
    told = preview(mirror, E.RESUME)

    assert not told.allowed
    assert "Cannot resume" in told.reason
    assert told.state_after == ""


def test_a_promotion_that_the_gate_refuses_says_so(mirror: MirrorTopic, link: ClusterLink) -> None:
    LinkConfig.objects.create(link=link, name="migration.gate.enable", value="true")
    fresh = MirrorTopic.objects.get(pk=mirror.pk)

    told = preview(fresh, E.PROMOTE)

    assert (told.allowed, "has not been run yet" in told.reason) == (False, True)
    assert preview(fresh, E.FAILOVER).allowed


def test_a_pause_loses_nothing(mirror: MirrorTopic) -> None:
    told = preview(mirror, E.PAUSE)

    assert (told.records_at_risk, told.groups_clamped, told.configs_to_change) == (0, (), {})
