"""State and error of a link, from what its mirrors' copy tasks see or, where none copies, from a look at the source."""

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
    """Tell whether somebody has to look at the source: the copy tasks do not tell, or tell of trouble."""
    if link.state == LinkState.PAUSED:
        return False
    looked = link.probed_at is not None  # the first look chooses how gaps are filled, where the creation has not
    if looked and link.state == LinkState.ACTIVE and any(one and one.phase is PartitionPhase.COPYING for one in verdicts):
        return False
    return _is_old(link.looked_at, now=now)


def note_verdicts(*, link: ClusterLink, verdicts: Collection[Verdict | None], now: datetime) -> bool:
    """Take over what copy tasks see of the whole source: a refused sign-in, another cluster, or records that flow."""
    known = [one for one in verdicts if one is not None]
    if any(one.phase is PartitionPhase.COPYING for one in known):
        return (note_success if link.probed_at else _note_active)(link=link, now=now)
    refused = next((one for one in known if one.code in _REFUSED), None)
    if refused is not None:
        return note_state(link=link, state=LinkState.FAILED, code=refused.code, message=refused.message, now=now)
    return False


def note_success(*, link: ClusterLink, now: datetime) -> bool:
    """Somebody has looked at the source, and it answers."""
    if _is_old(link.probed_at, now=now):  # called every second while records flow
        ClusterLink.objects.filter(pk=link.pk).update(probed_at=now)
        link.probed_at = now
    return _note_active(link=link, now=now)


def _note_active(*, link: ClusterLink, now: datetime) -> bool:
    return note_state(link=link, state=LinkState.ACTIVE, code="", message="", now=now)


def note_failure(*, link: ClusterLink, error: LinkEngineError, now: datetime) -> bool:
    """The source does not answer as it should: unreachable mends itself, everything else wants an edit of the link."""
    state = LinkState.UNAVAILABLE if error.code in _UNREACHABLE else LinkState.FAILED
    return note_state(link=link, state=state, code=error.code, message=error.message, now=now)


def note_state(*, link: ClusterLink, state: LinkState, code: str, message: str, now: datetime) -> bool:
    """Write the state unless the link is paused by a person; answer whether anything changed."""
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


def _is_old(look: datetime | None, *, now: datetime) -> bool:
    return look is None or is_due(look + PROBE_EVERY, now=now, longest=PROBE_EVERY)
