"""The state of a link, from copy workers and from probes of the source."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console.models import ClusterLink
from console.reconciling import phases
from console.reconciling.phases import WorstReport
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import LinkState
from tests.console.conftest import NOW

COPYING = WorstReport(phase=PartitionPhase.COPYING)
REFUSED = WorstReport(phase=PartitionPhase.LINK_BROKEN, code=ErrorCode.AUTHENTICATION_ERROR, message="Wrong password.")
NO_RIGHTS = WorstReport(phase=PartitionPhase.LINK_BROKEN, code=ErrorCode.AUTHORIZATION_ERROR, message="One topic only.")


def stored() -> tuple[str, str, str]:
    return ClusterLink.objects.values_list("state", "error_code", "error_message").get()


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.TIMEOUT_ERROR, "UNAVAILABLE"),
        (ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, "UNAVAILABLE"),
        (ErrorCode.AUTHENTICATION_ERROR, "FAILED"),
        (ErrorCode.CLUSTER_ID_MISMATCH, "FAILED"),
    ],
)
def test_failed_probe_sets_state_and_error(code: ErrorCode, state: str, link: ClusterLink) -> None:
    assert phases.note_failure(link=link, error=LinkEngineError(code, "Why."), now=NOW)
    assert stored() == (state, code, "Why.")
    assert not phases.note_failure(link=link, error=LinkEngineError(code, "Why."), now=NOW)

    assert phases.note_success(link=link, now=NOW + timedelta(seconds=5))
    assert stored() == ("ACTIVE", "", "")
    assert ClusterLink.objects.get().probed_at == NOW + timedelta(seconds=5)


def test_reports_of_copy_workers_set_the_state_of_the_link(link: ClusterLink) -> None:
    phases.note_reports(link=link, reports=[None, REFUSED], now=NOW)
    assert stored() == ("FAILED", "AUTHENTICATION_ERROR", "Wrong password.")

    phases.note_reports(link=link, reports=[COPYING, REFUSED], now=NOW)
    assert stored() == ("ACTIVE", "", "")


def test_link_that_was_never_probed_is_probed_even_while_copying(link: ClusterLink) -> None:
    """The probe chooses the gap filler; reports of copy workers do not contain it before the first gap."""
    link.state = LinkState.UNAVAILABLE
    link.save()

    assert phases.note_reports(link=link, reports=[COPYING], now=NOW)

    assert stored() == ("ACTIVE", "", "")
    assert ClusterLink.objects.get().probed_at is None
    assert phases.needs_probe(link=link, reports=[COPYING], now=NOW)


def test_missing_permission_on_a_topic_does_not_fail_the_link(link: ClusterLink) -> None:
    assert not phases.note_reports(link=link, reports=[NO_RIGHTS], now=NOW)
    assert stored()[0] == "ACTIVE"


def test_paused_link_stays_paused(link: ClusterLink) -> None:
    ClusterLink.objects.update(state=LinkState.PAUSED)  # not in the instance that was read before

    phases.note_failure(link=link, error=LinkEngineError(ErrorCode.TIMEOUT_ERROR, "Why."), now=NOW)

    assert stored()[0] == "PAUSED"


def test_source_is_probed_if_no_copy_worker_reports_on_it(link: ClusterLink) -> None:
    assert phases.needs_probe(link=link, reports=[], now=NOW)
    assert phases.needs_probe(link=link, reports=[REFUSED], now=NOW)
    link.probed_at = NOW
    assert not phases.needs_probe(link=link, reports=[COPYING], now=NOW)
    link.probe_tried_at = NOW - timedelta(seconds=4)
    assert not phases.needs_probe(link=link, reports=[], now=NOW)
    link.probe_tried_at = NOW - timedelta(seconds=5)
    assert phases.needs_probe(link=link, reports=[], now=NOW)
    link.probe_tried_at = NOW + timedelta(hours=1)  # a clock was set back
    assert phases.needs_probe(link=link, reports=[], now=NOW)
    link.state = LinkState.PAUSED
    assert not phases.needs_probe(link=link, reports=[], now=NOW)
