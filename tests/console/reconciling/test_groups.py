"""Consumer groups as rows, and the runs that a link's configs lead to."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DataError
from django.utils import timezone

from console.models import ClusterLink, LinkConfig, MirrorTopic, SyncedGroup
from console.reconciling import groups
from console.reconciling.groups import mirrors_of, recall, still_following, store_clamped, store_report, sync_of
from console.workflows.syncs import _errors, follow_groups, group_blockers
from linkengine import jobs
from linkengine.domain import groups as domain_groups
from linkengine.domain.errors import ErrorCode
from linkengine.domain.groups import GroupOutcome, GroupReport, GroupStatus, OffsetOutcome, PartitionOutcome
from linkengine.domain.states import MirrorState, StopReason
from tests.console.conftest import NOW, MakeMirror
from tests.linkengine.jobs.test_group_names import NAMES

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("switch", "prefix"), [("true", "west."), ("false", ""), (None, "")])
def test_groups_have_the_links_prefix_only_if_it_is_enabled(link: ClusterLink, switch: str | None, prefix: str) -> None:
    link.prefix = "west."
    link.save(update_fields=["prefix"])
    if switch is not None:
        link.configs.create(name="consumer.group.prefix.enable", value=switch)

    assert sync_of(ClusterLink.objects.get(pk=link.pk), [], now=NOW).group_prefix == prefix


@pytest.mark.parametrize(
    ("state", "changes", "chosen", "strictly"),
    [
        (MirrorState.ACTIVE, {}, True, True),
        (MirrorState.SOURCE_UNAVAILABLE, {}, True, True),
        (MirrorState.PAUSED, {}, False, True),  # a gate may check it
        (MirrorState.PENDING_STOPPED, {"stop_reason": StopReason.PROMOTE}, True, True),
        (MirrorState.PENDING_STOPPED, {"stop_reason": StopReason.PROMOTE, "fencing_at": NOW}, False, False),
        (MirrorState.PENDING_STOPPED, {"stop_reason": StopReason.FAILOVER}, False, False),
        (MirrorState.STOPPED, {}, False, False),
        (MirrorState.PENDING_MIRROR, {}, False, False),
        (MirrorState.ACTIVE, {"deletion_requested_at": NOW}, False, False),
    ],
)
def test_groups_are_synced_until_a_stop_or_a_deletion_starts(
    link: ClusterLink, make_mirror: MakeMirror, state: MirrorState, changes: dict[str, Any], *, chosen: bool, strictly: bool
) -> None:
    mirror = make_mirror("orders", state, num_partitions=2, **changes)

    assert mirrors_of(link) == ([mirror] if chosen else [])
    assert still_following(link, [mirror]) == ({"orders"} if chosen else set())
    assert still_following(link, [mirror], strict=True) == ({"orders"} if strictly else set())


@pytest.mark.parametrize(("switch", "status"), [("true", "SYNCED"), ("false", "WAITING")])
def test_run_that_ends_after_the_sync_was_disabled_leaves_no_group_synced(link: ClusterLink, switch: str, status: str) -> None:
    link.configs.create(name="consumer.offset.sync.enable", value=switch)
    outcome = GroupOutcome(name="app", destination_name="app", status=GroupStatus.SYNCED)

    store_report(link=link, report=GroupReport(groups=[outcome]), whole=True, now=NOW)

    assert SyncedGroup.objects.get().status == status


def test_batches_continue_where_the_last_one_ended_after_a_clock_was_set_back(link: ClusterLink) -> None:
    def run_at(*names: str, at: datetime) -> str:
        for name in names:
            SyncedGroup.objects.update_or_create(
                link=link, name=name, defaults={"destination_name": name, "looked_at": at, "listed_at": at}
            )
        return sync_of(link, [], now=NOW).after

    ahead = NOW + timedelta(hours=1)
    assert run_at("a", "b", "c", "d", at=NOW - timedelta(minutes=1)) == "d"
    assert run_at("a", "b", at=NOW) == "b"
    run_at("a", "b", at=ahead - timedelta(seconds=30))
    assert run_at("c", "d", at=ahead) == ""  # from the beginning: the last batch is unknown
    assert run_at("a", "b", at=NOW) == "b"
    assert run_at("c", "d", at=NOW + timedelta(seconds=1)) == "d"


def test_all_groups_that_cannot_be_synced_are_counted(link: ClusterLink, monkeypatch: pytest.MonkeyPatch) -> None:
    LinkConfig.objects.create(link=link, name="consumer.offset.sync.enable", value="true")
    SyncedGroup.objects.bulk_create(
        SyncedGroup(link=link, name=f"group-{number}", status=GroupStatus.IN_USE, listed_at=timezone.now())
        for number in range(60)
    )
    report = GroupReport(groups=[], incomplete="A broker is silent.")
    monkeypatch.setattr(jobs, "sync_groups", lambda **_: report)

    assert len(follow_groups(link).errors) == 61


def test_promotion_shows_that_a_report_cannot_be_stored(
    link: ClusterLink, mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise DataError("cannot contain NUL bytes")

    LinkConfig.objects.create(link=link, name="consumer.offset.sync.enable", value="true")
    monkeypatch.setattr(jobs, "sync_groups", lambda **_: GroupReport(groups=[]))
    monkeypatch.setattr(groups, "store_report", refuse)

    (found,) = group_blockers(mirror).items()

    assert found == (
        ErrorCode.INTERNAL_ERROR,
        "The state of the consumer groups cannot be stored: cannot contain NUL bytes",
    )


def outcome_of(name: str, *, topic: str) -> GroupOutcome:
    offset = PartitionOutcome(
        mirror_topic=topic, partition=0, source=5, destination=5, target=5, outcome=OffsetOutcome.EQUAL, written=True
    )
    return GroupOutcome(name=name, destination_name=f"west.{name}", status=GroupStatus.SYNCED, partitions=(offset,))


def test_groups_with_any_name_are_stored_recalled_and_clamped(link: ClusterLink, mirror: MirrorTopic) -> None:
    names = [*NAMES, "\x1a", "\x1a0", "\x1a\x1a0\0"]
    report = GroupReport(groups=[outcome_of(name, topic=mirror.name) for name in names])
    LinkConfig.objects.create(link=link, name="consumer.offset.sync.enable", value="true")

    for _ in range(2):  # the second time with existing rows
        store_report(link=link, report=report, whole=True, now=NOW)
    clamped = [domain_groups.ClampedOffset(group=name, partition=0, source=9, before=None, after=5) for name in names]
    for _ in range(2):
        store_clamped({mirror: clamped}, now=NOW)

    assert sorted(link.groups.values_list("name", flat=True)) == sorted(names)
    assert {row.destination_name for row in link.groups.all()} == {f"west.{name}" for name in names}
    assert sorted(recall(link, names, now=NOW)) == sorted(names)
    assert sorted(mirror.clamped_offsets.values_list("group", flat=True)) == sorted(names)
    assert sync_of(link, [mirror], now=NOW).after == max(names)


def test_error_with_any_group_name_can_be_stored(link: ClusterLink) -> None:
    """PostgreSQL stores no NUL in JSON, and a name may have 32,767 bytes."""
    LinkConfig.objects.create(link=link, name="consumer.offset.sync.enable", value="true")
    SyncedGroup.objects.create(link=link, name="a\0b" + "x" * 9999, status=GroupStatus.FAILED, listed_at=NOW)

    (error,) = _errors(link, GroupReport(groups=[]))

    assert error.message.startswith(r"'a\x00bxxx")
    assert len(error.message) < 200
