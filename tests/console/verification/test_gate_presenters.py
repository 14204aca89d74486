"""View model of the migration gate: it is shown as passed only if a promotion is possible."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console.models import GateRun, MirrorTopic
from console.verification.presenters import GateView, gate_view
from console.web.badges import Family
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror


def seen(mirror: MirrorTopic, status: str = "GREEN", *, after_s: int = 0) -> GateView:
    requested = {"requested_by": "owner", "requested_at": NOW, "reason": "Agreed."}
    run = GateRun.objects.create(mirror=mirror, status=status, finished_at=NOW, **requested)
    view = gate_view(run, now=NOW + timedelta(seconds=after_s))
    assert view is not None
    return view


def test_passed_gate_suggests_the_promotion(mirror: MirrorTopic) -> None:
    badge = seen(mirror).badge
    assert (badge.label, badge.next_step) == ("Passed", "Stop the producers on the source, then promote.")


@pytest.mark.parametrize("status", ["GREEN", "OVERRIDDEN"])
def test_expired_gate_run_advises_to_run_the_checks_again(mirror: MirrorTopic, status: str) -> None:
    badge = seen(mirror, status, after_s=901).badge

    assert (badge.label, badge.family, badge.next_step) == ("Expired", Family.WARN, "Run the checks again.")


def test_differing_records_invalidate_a_passed_gate_but_not_an_override(mirror: MirrorTopic) -> None:
    mirror.transition_errors.create(code="RECORDS_DIFFER", message="3 differ.", since=NOW, last_seen_at=NOW)

    assert (seen(mirror).badge.label, seen(mirror).badge.family) == ("Invalidated", Family.WARN)
    assert seen(mirror, "OVERRIDDEN").badge.label == "Overridden"


def test_gate_run_is_obsolete_after_the_topic_became_a_mirror_again(mirror: MirrorTopic) -> None:
    mirror.transitions.create(
        from_state="", to_state="ACTIVE", event="mirror-ready", by="engine", at=NOW + timedelta(seconds=1)
    )

    assert [seen(mirror, status, after_s=2).badge.label for status in ("GREEN", "OVERRIDDEN")] == ["Obsolete", "Obsolete"]


def test_failed_gate_stays_failed(mirror: MirrorTopic) -> None:
    assert seen(mirror, "RED", after_s=901).badge.label == "Failed"


def test_gate_run_of_a_stopped_mirror_does_not_expire(make_mirror: MakeMirror) -> None:
    assert seen(make_mirror(state=MirrorState.STOPPED), after_s=901).badge.label == "Passed"
