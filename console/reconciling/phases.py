"""What copy tasks report about a mirror's partitions becomes events of the mirror.

The worst partition speaks for the mirror. A lost source must stay lost for a moment before the state changes, since a broker
that restarts is no news; a refusal counts at once. Some troubles become permanent when they last for the link's retry timeout.
A task that finds the fence of a stop has come late, unless it was planned after the mirror came into its present state.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from console.actions import transitions
from console.actors import ENGINE
from console.errors import ConflictError, NotFoundError
from console.models import MirrorPartition, MirrorTopic
from console.models.mirrors import KEPT, is_fresh
from console.reconciling import troubles
from linkengine.domain.errors import ErrorCode, IllegalTransitionError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import COPYING, MirrorEvent, MirrorState, StopReason, can

FRESH = timedelta(seconds=10)  # older reports are of tasks that are gone
SOURCE_LOST_AFTER = timedelta(seconds=2)
RETRY_TIMEOUT = timedelta(minutes=5)  # the default of cluster.link.retry.timeout.ms
# Only where nothing else was seen meanwhile: a source that comes back after an hour must not find its mirrors FAILED.
_PERMANENT_IN_THE_END: frozenset[str] = frozenset(
    {ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED, ErrorCode.AUTHORIZATION_ERROR, ErrorCode.CORRUPT_RECORDS}
)
# Elsewhere the count is of what a promotion or a reversal tries.
_COUNTED = (MirrorState.ACTIVE, MirrorState.SOURCE_UNAVAILABLE, MirrorState.LINK_FAILED)
_HEALING = (MirrorEvent.SOURCE_BACK, MirrorEvent.LINK_HEALED)
_SEVERITY = (
    PartitionPhase.FAILED,
    PartitionPhase.LINK_BROKEN,
    PartitionPhase.SOURCE_UNREACHABLE,
    PartitionPhase.DESTINATION_UNREACHABLE,
    PartitionPhase.RELEASED,  # because a fence was found; else it says nothing
    PartitionPhase.COPYING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The worst fresh report of a mirror."""

    phase: PartitionPhase
    code: str = ""
    message: str = ""
    again: bool = False  # another try has failed since the last verdict
    since_ms: int = 0  # since when the mirror was in its state when that was planned


def verdict_on(rows: Iterable[MirrorPartition], *, now: datetime) -> Verdict | None:
    """Answer the worst of the fresh reports, None where there are none; waiting for a lease says nothing."""
    fresh = [row for row in rows if is_fresh(row.observed_at, now=now, within=FRESH)]
    for phase in _SEVERITY:
        for row in fresh:
            if row.phase == phase and (phase is not PartitionPhase.RELEASED or row.error_code == ErrorCode.MIRROR_WAS_STOPPED):
                again = any(one.failed_again for one in fresh)
                return Verdict(phase=phase, code=row.error_code, message=row.error_message, again=again, since_ms=row.since_ms)
    return None


def apply_verdict(
    *, mirror: MirrorTopic, verdict: Verdict | None, now: datetime, retry_timeout: timedelta = RETRY_TIMEOUT
) -> bool:
    """Move the mirror as its partitions demand and keep its errors; answer whether a page would show something new."""
    if verdict is None or MirrorState(mirror.state) not in COPYING or mirror.deletion_requested_at is not None:
        return False
    if mirror.state == MirrorState.PENDING_STOPPED and mirror.stop_reason == StopReason.FAILOVER:
        return False  # nothing that the copier could say holds it up
    if verdict.phase is PartitionPhase.RELEASED:
        return _found_stopped(mirror, verdict, now=now)
    if verdict.phase is PartitionPhase.COPYING:
        return _healthy(mirror, now=now)
    return _is_as_read(mirror) and _troubled(mirror, verdict, now=now, retry_timeout=retry_timeout)


def _is_as_read(mirror: MirrorTopic) -> bool:
    """Ask the row again: nobody takes an error off a mirror that was stopped or paused since the round began."""
    as_read = {"state": mirror.state, "stop_reason": mirror.stop_reason, "deletion_requested_at": None}
    return MirrorTopic.objects.filter(pk=mirror.pk, **as_read).exists()


def _found_stopped(mirror: MirrorTopic, verdict: Verdict, *, now: datetime) -> bool:
    """Fail a mirror that was stopped without us. Late copiers of a stop that we know of, or of a life before, prove nothing.

    A mirror that stops or is reversed right now is fenced for that.
    """
    if mirror.state not in _COUNTED or verdict.since_ms < int(mirror.state_since.timestamp() * 1000):
        return False
    facts = {"error_code": verdict.code, "error_message": verdict.message}
    return _move(mirror, MirrorEvent.FATAL, now=now, detail=verdict.message, **facts)


def _healthy(mirror: MirrorTopic, *, now: datetime) -> bool:
    if mirror.state in (MirrorState.PENDING_STOPPED, MirrorState.PENDING_SYNCHRONIZE):
        # its errors say what the promotion or the reversal waits for; the clock of the retry timeout stops
        if mirror.error_since is not None:
            MirrorTopic.objects.filter(pk=mirror.pk).update(error_since=None)
            mirror.error_since = None
        return False
    # the errors were read with the mirrors: a healthy link of a thousand mirrors asks nothing here
    troubled = any(one.code not in KEPT for one in mirror.transition_errors.all())
    healing = next((one for one in _HEALING if can(MirrorState(mirror.state), one)), None)
    if not (troubled or healing or mirror.error_code or mirror.error_since) or not _is_as_read(mirror):
        return False
    changed = troubled and troubles.clear(mirror=mirror)
    if mirror.error_code or mirror.error_since:
        MirrorTopic.objects.filter(pk=mirror.pk).update(error_code="", error_message="", error_since=None, retry_count=0)
        mirror.error_code, mirror.error_message, mirror.error_since = "", "", None
        changed = True
    return changed if healing is None else _move(mirror, healing, now=now)


def _troubled(mirror: MirrorTopic, verdict: Verdict, *, now: datetime, retry_timeout: timedelta) -> bool:
    changed = troubles.note(mirror=mirror, code=verdict.code or verdict.phase, message=verdict.message, now=now)
    changed |= troubles.end(mirror=mirror, codes=_PERMANENT_IN_THE_END - {verdict.code})
    since = mirror.error_since or now
    if verdict.code in _PERMANENT_IN_THE_END:  # an outage before it does not count
        since = max(since, troubles.since(mirror=mirror, code=verdict.code) or now)
    if verdict.again and mirror.state in _COUNTED:
        MirrorTopic.objects.filter(pk=mirror.pk).update(retry_count=F("retry_count") + 1)
        changed = True
    if mirror.error_since is None:
        MirrorTopic.objects.filter(pk=mirror.pk).update(error_since=now)
        mirror.error_since = now
    event = _event(verdict, lasted=now - since, retry_timeout=retry_timeout)
    if mirror.state == MirrorState.PENDING_STOPPED:
        return (verdict.phase is PartitionPhase.FAILED and _note_end_of_copier(mirror, verdict, now=now)) or changed
    if event is None or not can(MirrorState(mirror.state), event):
        return changed
    facts = {"error_code": verdict.code, "error_message": verdict.message} if event is MirrorEvent.FATAL else {}
    return _move(mirror, event, now=now, detail=verdict.message, **facts)


def _note_end_of_copier(mirror: MirrorTopic, verdict: Verdict, *, now: datetime) -> bool:
    """Write into the history of a waiting promotion, once, that the copier has given up: a failover wipes its errors."""
    newest = mirror.transitions.first()
    if mirror.fencing_at is not None or (newest is not None and newest.event == MirrorEvent.FATAL):
        return False
    return _move(mirror, MirrorEvent.FATAL, now=now, detail=verdict.message)


def _move(mirror: MirrorTopic, event: MirrorEvent, *, now: datetime, **facts: str) -> bool:
    """Take the step unless a person was quicker; a page shows something new in either case."""
    with suppress(IllegalTransitionError, ConflictError, NotFoundError):
        transitions.apply_event(mirror=mirror, event=event, by=ENGINE, now=now, **facts)
    return True


def _event(verdict: Verdict, *, lasted: timedelta, retry_timeout: timedelta) -> MirrorEvent | None:
    if verdict.phase is PartitionPhase.FAILED:
        return MirrorEvent.FATAL
    # "lasted" is above zero only from the second observation on
    if verdict.code in _PERMANENT_IN_THE_END and lasted and lasted >= retry_timeout:
        return MirrorEvent.FATAL
    if verdict.phase is PartitionPhase.LINK_BROKEN:
        return MirrorEvent.LINK_BROKEN
    if verdict.phase is PartitionPhase.SOURCE_UNREACHABLE and lasted >= SOURCE_LOST_AFTER:
        return MirrorEvent.SOURCE_LOST
    return None
