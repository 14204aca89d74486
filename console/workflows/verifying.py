"""Runs the verify job for mirrors, and the migration gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Sum
from django.utils import timezone

from console.links.task_queries import list_tasks
from console.mirrors import progress
from console.models import GateRun, MirrorTopic, VerifyRun
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.reconciling import coverage, plans
from console.verification import actions as verification_actions
from console.verification import rules as gate_rules
from console.verification.actions import UNFINISHED
from console.verification.queries import WATCHED, missing_beginnings
from console.verification.queries import coverage as coverage_of
from console.workflows.mirrors import follow_source
from console.workflows.syncs import acl_inequalities, group_blockers
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.gates import (
    CanaryRead,
    GateCheck,
    VerifiedData,
    check_blockers,
    check_canary,
    check_data,
    check_losses,
    check_task,
    fail_all,
)
from linkengine.domain.linktasks import LINK_TROUBLES, TaskName, TaskState
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.plans import VerifyReport
from linkengine.domain.ranges import missing_words, not_reached
from linkengine.domain.states import GapReason
from linkengine.sparkclient import SparkUnavailableError

# --- the verify job ---------------------------------------------------------------------------------------------------
#
# It compares in Spark SQL and uses no code of the copy. A comparison is either a run that a user has requested, or continuous:
# a single range that is not verified yet at a time.


TIMEOUT_S = 600.0  # of continuous verification, per range; other mirrors wait
OVERTAKEN = (
    "The mirror lost offsets, missed tombstones, was created anew or moved to another source while it was compared. Start the "
    "verification again."
)
_log = structlog.get_logger(__name__)


def compare(run: VerifyRun) -> None:
    """Compare a mirror with its source for a run that has started, and store the result."""
    try:
        report = jobs.verify(plans.verify_of(run.mirror), spark_url=settings.SPARK_URL, tag=f"verify-{run.pk}")
    except (LinkEngineError, SparkUnavailableError) as error:
        verification_actions.record_failure(run=run, message=getattr(error, "message", str(error)), now=timezone.now())
    except Exception:
        _log.exception("verify.failed", run=run.pk)
        message = "The verification failed unexpectedly; the worker's log has the details."
        verification_actions.record_failure(run=run, message=message, now=timezone.now())
        raise
    else:
        _keep(run, report, now=timezone.now())


def _keep(run: VerifyRun, report: VerifyReport, *, now: datetime) -> None:
    """Store result and ledger in the same transaction: DIFFERENT without an alarm, or EQUAL without ranges, would mislead."""
    with transaction.atomic():
        counts = coverage.note_report(mirror=run.mirror, report=report, run=run, now=now)
        if counts or report.differences:
            verification_actions.record_result(run=run, report=report, now=now)
        else:
            verification_actions.record_failure(run=run, message=OVERTAKEN, now=now)


def compare_next(mirror: MirrorTopic) -> None:
    """Compare the next range of a mirror, unless all are verified, and store that."""
    started_at = timezone.now()
    error = "" if _is_covered(mirror) else _compare_next(mirror)
    coverage.note_attempt(mirror=mirror, started_at=started_at, now=timezone.now(), error=error)


def load_watched(mirror_id: int) -> MirrorTopic | None:
    """Return a mirror if continuous verification compares it."""
    mirrors = MirrorTopic.objects.select_related("link__destination", "link__source")
    mirrors = mirrors.prefetch_related("link__configs", "partitions")
    return mirrors.filter(pk=mirror_id, state__in=WATCHED, deletion_requested_at=None).first()


def _is_covered(mirror: MirrorTopic) -> bool:
    """Return whether nothing is left to compare, according to the copy workers' reports: idle mirrors cost no request."""
    progress.refresh([mirror], now=timezone.now())
    parts = coverage_of(mirror=mirror)
    return bool(parts) and all(part.unverified == 0 for part in parts)


def _compare_next(mirror: MirrorTopic) -> str:
    """Compare a range and store the result. Return the error if the comparison failed (not if records differ), else ""."""
    try:
        report = jobs.verify_next(
            replace(plans.verify_of(mirror), gentle=True, timeout_s=TIMEOUT_S),
            covered=coverage.covered(mirror),
            most=coverage.most_records(mirror.link),
            spark_url=settings.SPARK_URL,
            tag=f"verify-next-{mirror.pk}",
        )
    except (LinkEngineError, SparkUnavailableError) as error:
        return getattr(error, "message", str(error))
    except Exception as error:  # noqa: BLE001 - unexpected: logged with traceback, shown, retried
        _log.exception("verify_next.failed", mirror=mirror.name)
        return f"The comparison failed unexpectedly ({type(error).__name__}); the worker's log has the details."
    if report is not None and MirrorTopic.objects.filter(pk=mirror.pk).exists():
        coverage.note_report(mirror=mirror, report=report, now=timezone.now())
    return ""


# --- the migration gate -----------------------------------------------------------------------------------------------
#
# Waits for its verification run, makes all other checks and stores the result.


_RUNNING = frozenset(TaskState) - LINK_TROUBLES - {TaskState.NOT_CONFIGURED}
_OTHER_TOPICS = (ErrorCode.SOURCE_TOPIC_ID_CHANGED, ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED, ErrorCode.MIRROR_TOPIC_MISSING)
_Compare = Callable[[MirrorTopic], Sequence[str]]  # returns what is unequal


def finish_gate(run: GateRun) -> None:
    """Finish a gate run if its verification run has ended."""
    if not _is_waiting(run):
        verification_actions.record_checks(run=run, checks=_checks(run), now=timezone.now())


def _is_waiting(run: GateRun) -> bool:
    """Return whether the verification run is unfinished. A terabyte takes hours.

    If its worker has crashed, ``continue_runs`` ends it.
    """
    return run.verify_run is not None and run.verify_run.status in UNFINISHED


def _checks(run: GateRun) -> list[GateCheck]:
    """Check both sides as a promotion does, which also corrects configs; does nothing for a topic that was stopped."""
    if run.mirror.state not in gate_rules.GATED:
        return fail_all(gettext_lazy("The topic is %(state)s now, so nothing was checked.", state=run.mirror.state))
    if gate_rules.is_outlived(run):
        return fail_all(
            gettext_lazy("The topic became a mirror again, or moved to another source, since this run started. Run it again.")
        )
    return _run_checks(run)


def _run_checks(run: GateRun) -> list[GateCheck]:
    mirror = run.mirror
    tasks = {task.name: task for task in list_tasks(link=mirror.link)}
    blockers = _blockers(mirror)
    compare_groups = partial(_unequal_groups, blockers=blockers)
    comparisons: dict[TaskName, _Compare] = {TaskName.CONSUMER_OFFSETS: compare_groups, TaskName.ACLS: _unequal_acls}
    return [
        check_data(_with_the_rest(mirror, _comparison(run.verify_run), run=run.verify_run)),
        check_losses(_lost(mirror)),
        *check_blockers(blockers),
        *(
            check_task(name, tasks[name].state, _unequal(compare, mirror) if tasks[name].state in _RUNNING else ())
            for name, compare in comparisons.items()
        ),
        check_canary(_canary(mirror)),
    ]


def _unequal(compare: _Compare, mirror: MirrorTopic) -> Sequence[str]:
    try:
        return compare(mirror)
    except LinkEngineError as error:
        return (error.message,)


def _unequal_groups(mirror: MirrorTopic, *, blockers: Sequence[tuple[ErrorCode, str]]) -> Sequence[str]:
    """Sync the mirror's groups as a promotion does, unless the mirror was stopped or a topic was created anew."""
    others = [message for code, message in blockers if code in _OTHER_TOPICS]
    if others:
        return others
    state = MirrorTopic.objects.values_list("state", flat=True).get(pk=mirror.pk)
    if state not in gate_rules.GATED:
        return (gettext_lazy("The topic is %(state)s now.", state=state),)
    return list(group_blockers(mirror).values())


def _unequal_acls(mirror: MirrorTopic) -> Sequence[str]:
    return acl_inequalities(mirror.link)


def _comparison(run: VerifyRun | None) -> VerifiedData:
    if run is None or run.status == VerifyRun.Status.ERROR:
        problem = run.error_message if run and run.error_message else gettext_lazy("it has been deleted.")
        return _doubtful(gettext_lazy("The verification run failed: %(problem)s", problem=problem))
    alarms = {} if run.differences else dict(run.mirror.transition_errors.values_list("code", "message"))
    if RECORDS_DIFFER in alarms:
        return _doubtful(
            gettext_lazy(
                "This verification run found no difference, but an earlier alarm stands: %(alarm)s",
                alarm=alarms[RECORDS_DIFFER],
            )
        )
    if TOMBSTONES_MISSED in alarms:
        return _doubtful(
            gettext_lazy(
                "The verification run started before the mirror was complete again; tombstones may be missing. Run it again."
            )
        )
    if run.records_compared is None or run.differences is None:
        return _doubtful(gettext_lazy("The verification run has no result. Run it again."))
    return VerifiedData(records=run.records_compared, differences=run.differences, not_copied=run.not_copied)


def _with_the_rest(mirror: MirrorTopic, seen: VerifiedData, *, run: VerifyRun | None) -> VerifiedData:
    """Add what the run did not compare: records below the higher of both log starts, and records copied after its end."""
    if seen.differences is None or seen.differences:
        return seen
    try:  # the mirror's first, since its start follows the source's
        mirrored = jobs.log_ranges(mirror.link.destination.address, mirror.name, closed=False)
        source = jobs.log_ranges(plans.source_address(mirror.link), mirror.source_topic, closed=False)
    except LinkEngineError as error:
        return _doubtful(gettext_lazy("The log starts of both sides could not be read: %(problem)s", problem=error.message))
    starts = {
        "source": {part.partition: part.start for part in source},
        "mirrored": {part.partition: part.start for part in mirrored},
    }
    since = not_reached(source={part.partition: part.end for part in mirrored}, compared=_compared_ends(run))
    return replace(seen, missing=missing_words(missing_beginnings(mirror=mirror, **starts)), copied_since=since)


def _compared_ends(run: VerifyRun | None) -> dict[int, int]:
    return {partition: end for partition, _, end in run.ranges} if run else {}


def _doubtful(problem: str) -> VerifiedData:
    return VerifiedData(records=0, differences=None, problem=problem)


def _lost(mirror: MirrorTopic) -> int:
    lost = mirror.gaps.filter(reason=GapReason.LOST).aggregate(offsets=Sum(F("end") - F("start")))
    return lost["offsets"] or 0


def _blockers(mirror: MirrorTopic) -> list[tuple[ErrorCode, str]]:
    try:
        follow_source(mirror)
    except LinkEngineError as error:
        return [(error.code, error.message)]
    return jobs.promotion_blockers(
        source=plans.source_address(mirror.link),
        destination=mirror.link.destination.address,
        source_topic=mirror.source_topic,
        mirror_topic=mirror.name,
        sync_include=mirror.link.sync_include,
    )


def _canary(mirror: MirrorTopic) -> list[CanaryRead]:
    try:
        return jobs.read_canary(
            source=plans.source_address(mirror.link),
            destination=mirror.link.destination.address,
            source_topic=mirror.source_topic,
            mirror_topic=mirror.name,
            compacted=mirror.was_compacted,
        )
    except LinkEngineError as error:
        _log.info("canary.failed", mirror=mirror.name, code=error.code)
        return [CanaryRead(partition=0, offset=None, problem=error.message)]
