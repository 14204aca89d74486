"""View models of mirror topics."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from console.mirrors.presenters import gap_groups, mirror_row, partition_row, steps
from console.mirrors.queries import summarize
from console.models import GapRange, MirrorPartition, StateTransition
from console.reconciling import transition_errors
from console.web import numbers
from linkengine.domain.states import MirrorState
from tests.console.conftest import MakeMirror


def test_copied_percentage_is_unknown_if_the_source_end_is_old() -> None:
    now = timezone.now()
    row = MirrorPartition(partition=0, source_end=100, mirror_end=50, mirror_start=0, last_source_seen_at=now)
    assert (partition_row(row, now=now).lag, partition_row(row, now=now).share) == ("50", 50)

    row.last_source_seen_at = now - timedelta(hours=1)
    assert partition_row(row, now=now).share is None


def test_rate_and_phase_are_unknown_if_the_report_is_old() -> None:
    now = timezone.now()
    row = MirrorPartition(partition=0, bytes_per_s=2_048.0, phase="COPYING", observed_at=now)
    assert (partition_row(row, now=now).rate, partition_row(row, now=now).phase) == ("2.00 KiB/s", "Copying")

    row.observed_at = now - timedelta(seconds=16)
    assert (partition_row(row, now=now).rate, partition_row(row, now=now).phase) == (numbers.UNKNOWN, numbers.UNKNOWN)


@pytest.mark.django_db
def test_mirror_row_shows_why_its_setup_fails(make_mirror: MakeMirror) -> None:
    now = timezone.now()
    mirror = make_mirror("orders", MirrorState.PENDING_SETUP, partitions=0)
    transition_errors.note(mirror=mirror, code="POLICY_VIOLATION_ERROR", message="No more topics.", now=now)

    note = mirror_row(summarize(mirror, now=now), now=now).note
    assert note is not None
    assert (note.code, note.message) == ("POLICY_VIOLATION_ERROR", "No more topics.")

    mirror.state = MirrorState.ACTIVE
    assert mirror_row(summarize(mirror, now=now), now=now).note is None


def test_history_distinguishes_failover_and_promotion() -> None:
    now = timezone.now()
    transitions = [
        StateTransition(to_state="PENDING_STOPPED", event=event, by="owner", at=now) for event in ("failover", "promote")
    ]

    assert [step.badge.label for step in steps(transitions, now=now)] == ["Failing over", "Promoting"]


def test_lost_offsets_are_counted_with_plural() -> None:
    def counted(number: int) -> str:
        gap = GapRange(partition=0, start=0, end=number, filled=number, reason="LOST")
        return gap_groups([gap])[0].counted

    assert (counted(1), counted(1_234)) == ("1 offset", "1,234 offsets")
