"""What one line of a mirror's partitions says."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from console.models import GapRange, MirrorPartition, StateTransition
from console.presenters import numbers
from console.presenters.mirrors import gap_groups, mirror_row, partition_row, steps
from console.queries.mirrors import summarize
from console.reconciling import troubles
from linkengine.domain.states import MirrorState
from tests.console.conftest import MakeMirror


def test_a_share_is_of_an_end_that_somebody_knows_now() -> None:
    now = timezone.now()
    row = MirrorPartition(partition=0, source_end=100, mirror_end=50, mirror_start=0, last_source_seen_at=now)
    assert (partition_row(row, now=now).lag, partition_row(row, now=now).share) == ("50", 50)

    row.last_source_seen_at = now - timedelta(hours=1)
    assert partition_row(row, now=now).share is None


def test_a_copier_that_fell_silent_is_not_said_to_copy_at_its_last_rate() -> None:
    now = timezone.now()
    row = MirrorPartition(partition=0, bytes_per_s=2_048.0, phase="COPYING", observed_at=now)
    assert (partition_row(row, now=now).rate, partition_row(row, now=now).phase) == ("2.00 KiB/s", "Copying")

    row.observed_at = now - timedelta(seconds=16)
    assert (partition_row(row, now=now).rate, partition_row(row, now=now).phase) == (numbers.UNKNOWN, numbers.UNKNOWN)


@pytest.mark.django_db
def test_a_list_says_why_a_mirror_is_not_set_up(make_mirror: MakeMirror) -> None:
    now = timezone.now()
    mirror = make_mirror("orders", MirrorState.PENDING_SETUP, partitions=0)
    troubles.note(mirror=mirror, code="POLICY_VIOLATION_ERROR", message="No more topics.", now=now)

    note = mirror_row(summarize(mirror, now=now), now=now).note
    assert note is not None
    assert (note.code, note.message) == ("POLICY_VIOLATION_ERROR", "No more topics.")

    mirror.state = MirrorState.ACTIVE
    assert mirror_row(summarize(mirror, now=now), now=now).note is None


def test_the_timeline_calls_a_failover_no_promotion() -> None:
    now = timezone.now()
    taken = [StateTransition(to_state="PENDING_STOPPED", event=event, by="owner", at=now) for event in ("failover", "promote")]

    assert [one.look.label for one in steps(taken, now=now)] == ["Failing over", "Promoting"]


def test_many_lost_offsets_are_more_than_one() -> None:
    def counted(number: int) -> str:
        gap = GapRange(partition=0, start=0, end=number, filled=number, reason="LOST")
        return gap_groups([gap])[0].counted

    assert (counted(1), counted(1_234)) == ("1 offset", "1,234 offsets")
