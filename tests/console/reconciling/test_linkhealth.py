"""State of a link from its copies and from looks at the source."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console.models import ClusterLink
from console.reconciling import linkhealth
from console.reconciling.phases import Verdict
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import LinkState
from tests.console.conftest import NOW

COPYING = Verdict(phase=PartitionPhase.COPYING)
REFUSED = Verdict(phase=PartitionPhase.LINK_BROKEN, code=ErrorCode.AUTHENTICATION_ERROR, message="Wrong password.")
NO_RIGHTS = Verdict(phase=PartitionPhase.LINK_BROKEN, code=ErrorCode.AUTHORIZATION_ERROR, message="One topic only.")


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
def test_a_failed_look_tells_what_must_be_mended(code: ErrorCode, state: str, link: ClusterLink) -> None:
    assert linkhealth.note_failure(link=link, error=LinkEngineError(code, "Why."), now=NOW)
    assert stored() == (state, code, "Why.")
    assert not linkhealth.note_failure(link=link, error=LinkEngineError(code, "Why."), now=NOW)

    assert linkhealth.note_success(link=link, now=NOW + timedelta(seconds=5))
    assert stored() == ("ACTIVE", "", "")
    assert ClusterLink.objects.get().probed_at == NOW + timedelta(seconds=5)


def test_copies_tell_of_the_whole_source(link: ClusterLink) -> None:
    linkhealth.note_verdicts(link=link, verdicts=[None, REFUSED], now=NOW)
    assert stored() == ("FAILED", "AUTHENTICATION_ERROR", "Wrong password.")

    linkhealth.note_verdicts(link=link, verdicts=[COPYING, REFUSED], now=NOW)
    assert stored() == ("ACTIVE", "", "")


def test_a_link_that_nobody_has_looked_at_is_looked_at_also_while_records_flow(link: ClusterLink) -> None:
    """The look chooses how gaps are filled; copies know nothing of that before the first one."""
    link.state = LinkState.UNAVAILABLE
    link.save()

    assert linkhealth.note_verdicts(link=link, verdicts=[COPYING], now=NOW)

    assert stored() == ("ACTIVE", "", "")
    assert ClusterLink.objects.get().probed_at is None
    assert linkhealth.needs_probe(link=link, verdicts=[COPYING], now=NOW)


def test_rights_on_one_topic_are_no_matter_of_the_link(link: ClusterLink) -> None:
    assert not linkhealth.note_verdicts(link=link, verdicts=[NO_RIGHTS], now=NOW)
    assert stored()[0] == "ACTIVE"


def test_a_paused_link_stays_paused(link: ClusterLink) -> None:
    ClusterLink.objects.update(state=LinkState.PAUSED)  # behind the back of the row in hand

    linkhealth.note_failure(link=link, error=LinkEngineError(ErrorCode.TIMEOUT_ERROR, "Why."), now=NOW)

    assert stored()[0] == "PAUSED"


def test_the_source_is_looked_at_where_copies_do_not_tell(link: ClusterLink) -> None:
    assert linkhealth.needs_probe(link=link, verdicts=[], now=NOW)
    assert linkhealth.needs_probe(link=link, verdicts=[REFUSED], now=NOW)
    link.probed_at = NOW
    assert not linkhealth.needs_probe(link=link, verdicts=[COPYING], now=NOW)
    link.looked_at = NOW - timedelta(seconds=4)
    assert not linkhealth.needs_probe(link=link, verdicts=[], now=NOW)
    link.looked_at = NOW - timedelta(seconds=5)
    assert linkhealth.needs_probe(link=link, verdicts=[], now=NOW)
    link.looked_at = NOW + timedelta(hours=1)  # a clock was set back
    assert linkhealth.needs_probe(link=link, verdicts=[], now=NOW)
    link.state = LinkState.PAUSED
    assert not linkhealth.needs_probe(link=link, verdicts=[], now=NOW)
