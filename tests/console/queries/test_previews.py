"""What an operation would do, told before it is done."""

from __future__ import annotations

from console.models import ClusterLink, GroupOffset, MirrorPartition, MirrorTopic, SyncedGroup
from console.queries.previews import preview
from linkengine.domain.states import MirrorEvent
from tests.console.conftest import NOW

E = MirrorEvent


def test_a_failover_tells_records_groups_and_configs(mirror: MirrorTopic, link: ClusterLink) -> None:
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(source_end=15)
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


def test_an_unknown_lag_is_not_nothing(mirror: MirrorTopic) -> None:
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(source_end=None)

    assert preview(mirror, E.PROMOTE).records_at_risk is None


def test_what_is_refused_says_why(mirror: MirrorTopic) -> None:
    told = preview(mirror, E.RESUME)

    assert not told.allowed
    assert "Cannot resume" in told.reason
    assert told.state_after == ""


def test_a_pause_loses_nothing(mirror: MirrorTopic) -> None:
    told = preview(mirror, E.PAUSE)

    assert (told.records_at_risk, told.groups_clamped, told.configs_to_change) == (0, (), {})
