"""State and error of a link: from what its copy workers report or, if none copies, from a probe of the source."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import F

from console.models import ClusterLink
from console.reconciling.phases import Verdict
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.moments import is_due
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import LinkState

PROBE_EVERY = timedelta(seconds=5)
_UNREACHABLE = {
    ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
    ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
    ErrorCode.TIMEOUT_ERROR,
    ErrorCode.DESTINATION_UNAVAILABLE,
}
_REFUSED = {ErrorCode.AUTHENTICATION_ERROR, ErrorCode.CLUSTER_ID_MISMATCH}


def needs_probe(*, link: ClusterLink, verdicts: Collection[Verdict | None], now: datetime) -> bool:
    """Return whether the source has to be probed: no copy worker reports on it, or reports a problem."""
    if link.state == LinkState.PAUSED:
        return False
    probed = link.probed_at is not None  # the first probe chooses the gap filler, if the creation has not
    if (
        probed
        and link.state == LinkState.ACTIVE
        and any(verdict and verdict.phase is PartitionPhase.COPYING for verdict in verdicts)
    ):
        return False
    return _is_old(link.looked_at, now=now)


def note_verdicts(*, link: ClusterLink, verdicts: Collection[Verdict | None], now: datetime) -> bool:
    """Apply what copy workers report on the whole source: failed authentication, another cluster, or successful copying."""
    known = [verdict for verdict in verdicts if verdict is not None]
    if any(verdict.phase is PartitionPhase.COPYING for verdict in known):
        return (note_success if link.probed_at else _note_active)(link=link, now=now)
    refused = next((verdict for verdict in known if verdict.code in _REFUSED), None)
    if refused is not None:
        return note_state(link=link, state=LinkState.FAILED, code=refused.code, message=refused.message, now=now)
    return False


def note_success(*, link: ClusterLink, now: datetime) -> bool:
    """Set the link to ACTIVE: the source was reached."""
    if _is_old(link.probed_at, now=now):  # called every second while records flow
        ClusterLink.objects.filter(pk=link.pk).update(probed_at=now)
        link.probed_at = now
    return _note_active(link=link, now=now)


def _note_active(*, link: ClusterLink, now: datetime) -> bool:
    return note_state(link=link, state=LinkState.ACTIVE, code="", message="", now=now)


def note_failure(*, link: ClusterLink, error: LinkEngineError, now: datetime) -> bool:
    """Set the link to UNAVAILABLE, which ends automatically, or to FAILED, which requires an edit of the link."""
    state = LinkState.UNAVAILABLE if error.code in _UNREACHABLE else LinkState.FAILED
    return note_state(link=link, state=state, code=error.code, message=error.message, now=now)


def note_state(*, link: ClusterLink, state: LinkState, code: str, message: str, now: datetime) -> bool:
    """Set the state unless a user has paused the link. Returns whether anything changed."""
    if (link.state, link.error_code, link.error_message) == (state, code, message) or link.state == LinkState.PAUSED:
        return False
    values: dict[str, object] = {"state": state, "error_code": code, "error_message": message}
    values["error_since"] = (link.error_since or now) if code else None
    if state != link.state:
        values["state_since"] = now
    changed = (
        ClusterLink.objects.filter(pk=link.pk).exclude(state=LinkState.PAUSED).update(**values, sequence=F("sequence") + 1)
    )
    for name, value in values.items():
        setattr(link, name, value)
    return bool(changed)


def _is_old(probed_at: datetime | None, *, now: datetime) -> bool:
    return probed_at is None or is_due(probed_at + PROBE_EVERY, now=now, longest=PROBE_EVERY)
