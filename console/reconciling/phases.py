"""State of mirrors and links: turns the reports of copy workers into events."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from console.actors import ENGINE
from console.errors import ConflictError, NotFoundError
from console.mirrors import transitions
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.mirrors import AHEAD, KEPT, is_fresh
from console.reconciling import transition_errors
from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import COPYING, LinkState, MirrorEvent, MirrorState, StopReason, can

# --- events of a mirror -----------------------------------------------------------------------------------------------
#
# A mirror's status is that of its worst partition. A source must be unreachable for ``SOURCE_LOST_AFTER`` before the state
# changes, since a restarting broker is normal; a refusal counts at once. Some errors become permanent if they last for the
# link's retry timeout. A report of a fence comes from a stale copy worker and is ignored, unless its assignment is newer than
# the mirror's present state.


REPORT_VALID = timedelta(seconds=10)  # older reports are of workers that no longer run
SOURCE_LOST_AFTER = timedelta(seconds=2)
RETRY_TIMEOUT = timedelta(minutes=5)  # the default of cluster.link.retry.timeout.ms
# Only if no other error was reported in between: a source that returns after an hour must not find its mirrors FAILED.
_PERMANENT_IN_THE_END: frozenset[str] = frozenset(
    {ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED, ErrorCode.AUTHORIZATION_ERROR, ErrorCode.CORRUPT_RECORDS}
)
# In other states retry_count counts the attempts of a promotion or a reversal.
_COUNTED = (MirrorState.ACTIVE, MirrorState.SOURCE_UNAVAILABLE, MirrorState.LINK_FAILED)
_HEALING = (MirrorEvent.SOURCE_BACK, MirrorEvent.LINK_HEALED)
_SEVERITY = (
    PartitionPhase.FAILED,
    PartitionPhase.LINK_BROKEN,
    PartitionPhase.SOURCE_UNREACHABLE,
    PartitionPhase.DESTINATION_UNREACHABLE,
    PartitionPhase.RELEASED,  # if a fence was found; otherwise it has no meaning
    PartitionPhase.COPYING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstReport:
    """The worst fresh report of a mirror."""

    phase: PartitionPhase
    code: str = ""
    message: str = ""
    again: bool = False  # another attempt has failed since the previous report
    since_ms: int = 0  # start of the state that the mirror had when the assignment was written


def worst_report(rows: Iterable[MirrorPartition], *, now: datetime) -> WorstReport | None:
    """Return the worst fresh report, None if there is none. Reports of waiting for a lease have no meaning here."""
    fresh = [row for row in rows if is_fresh(row.observed_at, now=now, within=REPORT_VALID)]
    for phase in _SEVERITY:
        for row in fresh:
            if row.phase == phase and (phase is not PartitionPhase.RELEASED or row.error_code == ErrorCode.MIRROR_WAS_STOPPED):
                again = any(other.failed_again for other in fresh)
                return WorstReport(
                    phase=phase, code=row.error_code, message=row.error_message, again=again, since_ms=row.since_ms
                )
    return None


def apply_report(
    *, mirror: MirrorTopic, report: WorstReport | None, now: datetime, retry_timeout: timedelta = RETRY_TIMEOUT
) -> bool:
    """Move the mirror to the state that its partitions require, and store its errors. Returns whether a page would change."""
    if report is None or MirrorState(mirror.state) not in COPYING or mirror.deletion_requested_at is not None:
        return False
    if mirror.state == MirrorState.PENDING_STOPPED and mirror.stop_reason == StopReason.FAILOVER:
        return False  # no report of a copy worker delays a failover
    if report.phase is PartitionPhase.RELEASED:
        return _found_stopped(mirror, report, now=now)
    if report.phase is PartitionPhase.COPYING:
        return _healthy(mirror, now=now)
    return _is_as_read(mirror) and _troubled(mirror, report, now=now, retry_timeout=retry_timeout)


def _is_as_read(mirror: MirrorTopic) -> bool:
    """Check the row again: errors of a mirror that was stopped or paused since the pass started would never be cleared."""
    as_read = {"state": mirror.state, "stop_reason": mirror.stop_reason, "deletion_requested_at": None}
    return MirrorTopic.objects.filter(pk=mirror.pk, **as_read).exists()


def _found_stopped(mirror: MirrorTopic, report: WorstReport, *, now: datetime) -> bool:
    """Fail a mirror whose stop is not in this database, for example after a restore from a backup.

    Reports of stale copy workers, of a known stop or of an earlier state, are ignored. A mirror that is stopping or being
    reversed has a fence for that reason.
    """
    if mirror.state not in _COUNTED or report.since_ms < int(mirror.state_since.timestamp() * 1000):
        return False
    facts = {"error_code": report.code, "error_message": report.message}
    return _move(mirror, MirrorEvent.FATAL, now=now, detail=report.message, **facts)


def _healthy(mirror: MirrorTopic, *, now: datetime) -> bool:
    if mirror.state in (MirrorState.PENDING_STOPPED, MirrorState.PENDING_SYNCHRONIZE):
        # its errors show what the promotion or the reversal waits for; only the clock of the retry timeout stops
        if mirror.error_since is not None:
            MirrorTopic.objects.filter(pk=mirror.pk).update(error_since=None)
            mirror.error_since = None
        return False
    # the errors were loaded with the mirrors, so a healthy link with a thousand mirrors causes no query here
    troubled = any(error.code not in KEPT for error in mirror.transition_errors.all())
    healing = next((event for event in _HEALING if can(MirrorState(mirror.state), event)), None)
    if not (troubled or healing or mirror.error_code or mirror.error_since) or not _is_as_read(mirror):
        return False
    changed = troubled and transition_errors.clear(mirrors=[mirror], now=now)
    if mirror.error_code or mirror.error_since:
        MirrorTopic.objects.filter(pk=mirror.pk).update(error_code="", error_message="", error_since=None, retry_count=0)
        mirror.error_code, mirror.error_message, mirror.error_since = "", "", None
        changed = True
    return changed if healing is None else _move(mirror, healing, now=now)


def _troubled(mirror: MirrorTopic, report: WorstReport, *, now: datetime, retry_timeout: timedelta) -> bool:
    changed = transition_errors.note(mirror=mirror, code=report.code or report.phase, message=report.message, now=now)
    changed |= transition_errors.end(mirror=mirror, codes=_PERMANENT_IN_THE_END - {report.code}, now=now)
    since = mirror.error_since or now
    if report.code in _PERMANENT_IN_THE_END:  # an outage before this error does not count
        since = max(since, transition_errors.since(mirror=mirror, code=report.code) or now)
    if report.again and mirror.state in _COUNTED:
        MirrorTopic.objects.filter(pk=mirror.pk).update(retry_count=F("retry_count") + 1)
        changed = True
    if mirror.error_since is None:
        MirrorTopic.objects.filter(pk=mirror.pk).update(error_since=now)
        mirror.error_since = now
    event = _event(report, lasted=now - since, retry_timeout=retry_timeout)
    if mirror.state == MirrorState.PENDING_STOPPED:
        return (report.phase is PartitionPhase.FAILED and _record_copy_failure(mirror, report, now=now)) or changed
    if event is None or not can(MirrorState(mirror.state), event):
        return changed
    facts = {"error_code": report.code, "error_message": report.message} if event is MirrorEvent.FATAL else {}
    return _move(mirror, event, now=now, detail=report.message, **facts)


def _record_copy_failure(mirror: MirrorTopic, report: WorstReport, *, now: datetime) -> bool:
    """Store in the history of a waiting promotion, once, that copying has failed: a failover clears its errors."""
    newest = mirror.transitions.first()
    if mirror.fencing_at is not None or (newest is not None and newest.event == MirrorEvent.FATAL):
        return False
    return _move(mirror, MirrorEvent.FATAL, now=now, detail=report.message)


def _move(mirror: MirrorTopic, event: MirrorEvent, *, now: datetime, **facts: str) -> bool:
    """Apply the event unless a user was faster; a page changes in either case."""
    with suppress(IllegalTransitionError, ConflictError, NotFoundError):
        transitions.apply_event(mirror=mirror, event=event, by=ENGINE, now=now, **facts)
    return True


def _event(report: WorstReport, *, lasted: timedelta, retry_timeout: timedelta) -> MirrorEvent | None:
    if report.phase is PartitionPhase.FAILED:
        return MirrorEvent.FATAL
    # lasted is above zero only from the second report on
    if report.code in _PERMANENT_IN_THE_END and lasted and lasted >= retry_timeout:
        return MirrorEvent.FATAL
    if report.phase is PartitionPhase.LINK_BROKEN:
        return MirrorEvent.LINK_BROKEN
    if report.phase is PartitionPhase.SOURCE_UNREACHABLE and lasted >= SOURCE_LOST_AFTER:
        return MirrorEvent.SOURCE_LOST
    return None


# --- state and error of a link ----------------------------------------------------------------------------------------
#
# From the reports of its copy workers or, if none copies, from a probe of the source.


PROBE_EVERY = timedelta(seconds=5)
_UNREACHABLE = {
    ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
    ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
    ErrorCode.TIMEOUT_ERROR,
    ErrorCode.DESTINATION_UNAVAILABLE,
}
_REFUSED = {ErrorCode.AUTHENTICATION_ERROR, ErrorCode.CLUSTER_ID_MISMATCH}


def needs_probe(*, link: ClusterLink, reports: Collection[WorstReport | None], now: datetime) -> bool:
    """Return whether the source has to be probed: no copy worker reports on it, or reports a problem."""
    if link.state == LinkState.PAUSED:
        return False
    probed = link.probed_at is not None  # the first probe chooses the gap filler, if the creation has not
    if (
        probed
        and link.state == LinkState.ACTIVE
        and any(report and report.phase is PartitionPhase.COPYING for report in reports)
    ):
        return False
    return _is_old(link.probe_tried_at, now=now)


def note_reports(*, link: ClusterLink, reports: Collection[WorstReport | None], now: datetime) -> bool:
    """Apply what copy workers report on the whole source: failed authentication, another cluster, or successful copying."""
    known = [report for report in reports if report is not None]
    if any(report.phase is PartitionPhase.COPYING for report in known):
        return (note_success if link.probed_at else _note_active)(link=link, now=now)
    refused = next((report for report in known if report.code in _REFUSED), None)
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
    # A time ahead of now does not count: until then the link would stay ACTIVE even if its source is down.
    return probed_at is None or not -AHEAD <= now - probed_at < PROBE_EVERY
