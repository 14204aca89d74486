"""The recurring tasks of a link: ConsumerOffsetSync, AclSync, TopicConfigsSync and AutoCreateMirror."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain

import structlog
from django.db import DatabaseError
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from console.actors import ENGINE
from console.errors import BadRequestError, ConflictError
from console.links.rules import syncs_offsets
from console.links.topic_queries import facts_of_link
from console.mirrors.actions import auto_create, unsaved_mirror
from console.models import (
    AutoCreateFailure,
    ClusterLink,
    LinkTask,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    SyncedAcl,
    SyncedGroup,
)
from console.models.links import show_change
from console.queue import dispatch
from console.reconciling import gaps, groups, plans, sampling, transition_errors
from console.redis import locks
from console.web.numbers import plural
from console.workflows.mirrors import note_failure, note_synced
from linkengine import jobs
from linkengine.domain.acls import Acl, AclFacts, AclPlan, AclStatus, inequalities, plan_acls
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import GroupReport, GroupStatus, Memory, quoted_name
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TASKS, TaskError, TaskName, TaskOutcome
from linkengine.domain.mirrorability import CheckCode, CheckedTopic, ListedTopic, MirrorabilityStatus, check_topics
from linkengine.domain.mirrorjobs import MirrorSetup, RefusedStep
from linkengine.domain.names import parse_filters
from linkengine.domain.plans import TopicDescription
from linkengine.domain.states import LinkState, MirrorState
from linkengine.domain.times import CONFIRM_AFTER_S

# --- ConsumerOffsetSync -----------------------------------------------------------------------------------------------
#
# Also the check of a promotion that all consumer offsets are equal.


_CODES = {GroupStatus.IN_USE: ErrorCode.CONSUMER_GROUP_IN_USE_ERROR, GroupStatus.FAILED: ErrorCode.INTERNAL_ERROR}
_FOLLOWED = (GroupStatus.SYNCED, GroupStatus.PARTLY_SYNCED)
_log = structlog.get_logger(__name__)


def follow_groups(link: ClusterLink) -> TaskOutcome:
    """Sync a batch of consumer groups. The errors returned are those of all groups, not only of the batch."""
    report = _run(link, groups.mirrors_of(link), strict=False)
    groups.store_report(link=link, report=report, whole=True, now=timezone.now())
    changes = sum(partition.written for group in report.groups for partition in group.partitions)
    return TaskOutcome(
        errors=_errors(link, report), summary=_group_summary(link), changes=changes, more=bool(report.next_after)
    )


def group_blockers(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    """Sync the offsets of the mirror for the last time, and return which groups are not equal yet."""
    if not syncs_offsets(mirror.link):
        return {}
    report = _run(mirror.link, [mirror], strict=True)
    try:
        groups.store_report(link=mirror.link, report=report, whole=False, now=timezone.now())
    except (DatabaseError, ValueError) as error:  # otherwise the promotion would wait without a reason shown
        _log.exception("groups.not_kept", mirror=mirror.name)
        return {ErrorCode.INTERNAL_ERROR: f"The state of the consumer groups cannot be stored: {error}"}
    if not groups.still_following(mirror.link, [mirror], strict=True):  # the report does not contain this
        message = (
            f"Topic '{mirror.name}' was failed over, has failed or is being deleted since its consumer groups were checked. "
            "Their offsets are not changed."
        )
        return {ErrorCode.WAITING_FOR_GROUPS: message}
    return dict(jobs.group_blockers(report))


def _run(link: ClusterLink, mirrors: Sequence[MirrorTopic], *, strict: bool) -> GroupReport:
    """Sync groups: a batch over all mirrors of the link, or (``strict``) all groups of the mirror that is to be promoted."""
    rows = {mirror.name: mirror for mirror in mirrors}

    def recall(names: Sequence[str]) -> Mapping[str, Memory]:
        return groups.recall(link, names, now=timezone.now())

    def following(topics: Collection[str]) -> Collection[str]:
        return groups.still_following(link, [rows[topic] for topic in topics], strict=strict)

    return jobs.sync_groups(
        source=plans.source_address(link),
        destination=link.destination.address,
        sync=groups.sync_of(link, mirrors, strict=strict, now=timezone.now()),
        recall=recall,
        following=following,
    )


def _errors(link: ClusterLink, report: GroupReport) -> tuple[TaskError, ...]:
    rows = SyncedGroup.objects.filter(link=link, status__in=_CODES)
    errors = [
        TaskError(code=_CODES[GroupStatus(row.status)], message=f"{quoted_name(row.name)}: {row.message}") for row in rows
    ]
    if report.incomplete:
        message = f"Some consumer groups of the source cannot be synced. {report.incomplete}"
        errors.insert(0, TaskError(code=ErrorCode.TIMEOUT_ERROR, message=message))
    return tuple(errors)


def _group_summary(link: ClusterLink) -> str:
    counts = SyncedGroup.objects.filter(link=link).order_by().values_list("status").annotate(count=Count("pk"))
    by_status = dict(counts)
    followed = sum(by_status.get(status, 0) for status in _FOLLOWED)
    waiting = by_status.get(GroupStatus.WAITING, 0)
    skipped = sum(by_status.values()) - followed - waiting
    later = f", {waiting} wait for the next run" if waiting else ""
    return f"Groups synced: {followed}; skipped: {skipped}{later}."


# --- AclSync ----------------------------------------------------------------------------------------------------------
#
# Creates the ACLs that the filters include, and deletes those that the source has deleted.


BATCH = 500  # changes per run


def follow_acls(link: ClusterLink) -> TaskOutcome:
    """Apply at most ``BATCH`` changes to the destination's ACLs. A lock excludes other links of the same destination."""
    with locks.lock(f"acls:{link.destination_id}") as acquired:
        if not acquired:  # another link is changing the same ACLs
            return TaskOutcome(summary=_acl_summary(link), more=True)
        here, facts = link.destination.address, _facts(link)
        plan, unconfirmed = _plan(link, facts)
        plan, more = _bounded(plan)
        groups.store_plan(link=link, plan=plan, now=timezone.now())
        delete = [acl for acl in plan.delete if acl in facts.destination]
        failures = jobs.change_acls(here, create=plan.create, delete=delete)
        groups.store_changes(link=link, created=plan.create, deleted=plan.delete, failures=failures, now=timezone.now())
        changes = len(plan.create) + len(delete) - len(failures)
        errors = tuple(TaskError(code=error.code, message=error.message) for error in failures.values())
        return TaskOutcome(summary=_acl_summary(link), errors=(*unconfirmed, *errors), changes=changes, more=more)


def acl_inequalities(link: ClusterLink) -> Sequence[str]:
    """Return which of the included ACLs differ between the clusters. Changes nothing.

    A broker may show old ACLs. An ACL may therefore be missing if any broker of the source shows it and not every broker of the
    destination does, and may be one too many in the opposite case.
    """
    before, addresses = groups.own_rules(link), (plans.source_address(link), link.destination.address)
    source, destination = (jobs.read_acls_by_broker(address) for address in addresses)
    missing = groups.facts_of(link, source=set.union(*source), destination=set.intersection(*destination), before=before)
    surplus = replace(missing, source=set.intersection(*source), destination=set.union(*destination))
    return list(dict.fromkeys([*inequalities(missing), *inequalities(surplus)]))


def _facts(link: ClusterLink) -> AclFacts:
    before = groups.own_rules(link)
    there, present = jobs.read_acls(plans.source_address(link)), jobs.read_acls(link.destination.address)
    return groups.facts_of(link, source=there, destination=present, before=before)


def _plan(link: ClusterLink, facts: AclFacts) -> tuple[AclPlan, tuple[TaskError, ...]]:
    """Return the changes to make, as far as they are confirmed, and what prevents the others.

    * Before ACLs are created, both clusters are read once more: an ACL that a single response shows is not created, and one
      that existed on the destination does not count as the link's own, which would delete it later.
    * Before ACLs are deleted, every broker of the source has to show that they are gone: a broker that has just started, or was
      cut off from the controllers, returns old metadata, and an application would have no access.
    """
    plan = plan_acls(facts)
    if plan.create:
        facts = _confirmed(facts, jobs.read_acls(plans.source_address(link)), jobs.read_acls(link.destination.address))
        plan = plan_acls(facts)
    if not plan.delete:
        return plan, ()
    time.sleep(CONFIRM_AFTER_S)
    errors: tuple[TaskError, ...] = ()
    try:
        present = set.union(*jobs.read_acls_by_broker(plans.source_address(link)))
    except LinkEngineError as error:
        present = set(facts.ledger)
        errors = (TaskError(code=error.code, message=f"No ACL is deleted. {error.message}"),)
    return plan_acls(replace(facts, source={*facts.source, *present})), errors


def _confirmed(facts: AclFacts, source: set[Acl], destination: set[Acl]) -> AclFacts:
    """Return the facts with a second reading.

    An ACL of the source counts if both readings have it, or if either has it and it is in the ledger. An ACL of the destination
    counts if either reading has it.
    """
    first = set(facts.source)
    return replace(
        facts,
        source=(first & source) | ((first | source) & set(facts.ledger)),
        destination={*facts.destination, *destination},
    )


def _bounded(plan: AclPlan) -> tuple[AclPlan, bool]:
    """Cut the plan to a batch. ACLs that are not created in this batch must not be in the ledger."""
    create, delete = plan.create[:BATCH], plan.delete[:BATCH]
    later = set(plan.create[BATCH:])
    rows = tuple(row for row in plan.rows if row.acl not in later)
    more = len(create) < len(plan.create) or len(delete) < len(plan.delete)
    return replace(plan, create=create, delete=delete, rows=rows), more


def _acl_summary(link: ClusterLink) -> str:
    counts = SyncedAcl.objects.filter(link=link).aggregate(
        made=Count("pk", filter=Q(status=AclStatus.CREATED)),
        others=Count("pk", filter=~Q(status=AclStatus.CREATED)),
        conflicts=Count("pk", filter=Q(is_conflict=True)),
    )
    return f"ACLs synced: {counts['made']}; not changed: {counts['others']}; conflicts: {counts['conflicts']}."


# --- TopicConfigsSync -------------------------------------------------------------------------------------------------
#
# Applies partition counts and configs of source topics to their mirrors.


SYNCED = (MirrorState.ACTIVE, MirrorState.PENDING_SYNCHRONIZE)
MIRRORS_AT_ONCE = 500  # in a single request per cluster and kind
RUN_S = 60.0  # a longer run stops between two batches, since tasks of other links need the thread too
_FATAL = {
    ErrorCode.SOURCE_TOPIC_ID_CHANGED,
    ErrorCode.SOURCE_PARTITIONS_DECREASED,
    ErrorCode.MIRROR_TOPIC_MISSING,
    ErrorCode.MIRROR_WAS_STOPPED,
}


def follow_topics(link: ClusterLink) -> TaskOutcome:
    """Sync partitions and configs of all mirrors once, starting after the last batch that the previous run began.

    If the time is over before the end, the outcome says so and the next run follows at once. The position is stored once per
    batch, before it: a run that ends early, fails or crashes does not keep the mirrors behind it from being synced. A run that
    finds no difference writes nothing else; what it did is in the row of the task (``LinkTask``).
    """
    waiting, deadline = _waiting(link), time.monotonic() + RUN_S
    batches = [waiting[start : start + MIRRORS_AT_ONCE] for start in range(0, len(waiting), MIRRORS_AT_ONCE)]
    parts: list[TaskOutcome] = []
    while len(parts) < len(batches) and not (parts and time.monotonic() > deadline):
        batch = batches[len(parts)]
        if len(batches) > 1:
            ClusterLink.objects.filter(pk=link.pk).update(config_sync_position=batch[-1])
        parts.append(_follow(link, batch))
    left = sum(len(batch) for batch in batches[len(parts) :])
    errors = [_unfinished(left)] if left else []
    changes = sum(part.changes for part in parts)
    return TaskOutcome(
        errors=tuple(chain(errors, *(part.errors for part in parts))),
        summary=_config_summary(len(waiting) - left, changes),
        changes=changes,
        more=left > 0,
    )


def request_growth(link: ClusterLink, *, now: datetime) -> None:
    """Request a run now if a source topic was listed with more partitions than its mirror has.

    The interval of the task may be a day. Until the next run the records of a new partition are not copied, so its lag is
    unknown from now on.
    """
    if link.state != LinkState.ACTIVE:
        return
    same = SourceTopic.objects.filter(link=link, name=OuterRef("source_topic"), topic_id=OuterRef("source_topic_id"))
    lacking = _mirrors(link).annotate(listed=Subquery(same.values("partitions")[:1])).filter(listed__gt=F("num_partitions"))
    noted = MirrorPartition.objects.filter(mirror=OuterRef("pk"), partition__gte=OuterRef("num_partitions"))
    found = list(lacking.annotate(is_noted=Exists(noted)))
    for mirror in found:
        if not mirror.is_noted:
            sampling.note_missing_partitions(mirror, total=mirror.listed, why=_too_few(mirror.listed, mirror.num_partitions))
    if found:
        LinkTask.objects.update_or_create(link=link, name=TaskName.TOPIC_CONFIGS, defaults={"requested_at": now})
        show_change(link.pk)
        dispatch.send("run_link_task", link_id=link.pk, task=TaskName.TOPIC_CONFIGS)


def _too_few(listed: int, present: int) -> LinkEngineError:
    message = f"The source topic has {listed} partitions, the mirror {present}. The next run adds them."
    return LinkEngineError(ErrorCode.WAITING_FOR_PARTITIONS, message)


def _follow(link: ClusterLink, mirror_ids: Sequence[int]) -> TaskOutcome:
    chosen = list(_mirrors(link).filter(pk__in=mirror_ids))
    if not chosen:
        return TaskOutcome()
    late, queried_at = gaps.mirrors_with_lateness(chosen), timezone.now()
    outcomes = jobs.sync_mirrors(plans.syncs_of(chosen), still_mirrors=transition_errors.still_mirrors(link))
    errors, changes = [], 0
    for mirror, outcome in zip(chosen, outcomes, strict=True):
        if isinstance(outcome, LinkEngineError):
            errors.append(_note_error(mirror, outcome))
        else:
            note_synced(mirror, outcome, now=timezone.now(), queried_at=queried_at if mirror.pk in late else None)
            changes += len(outcome.changed)
            errors += [_note_error(mirror, error) for error in (outcome.growth_error, outcome.configs_error) if error]
            errors += [_refused(mirror, step) for step in outcome.refused]
    return TaskOutcome(errors=tuple(errors), changes=changes)


def _config_summary(mirrors: int, changes: int) -> str:
    return f"{plural(mirrors, 'mirror topic')} compared with their sources; {plural(changes, 'config')} set by the last run."


def _note_error(mirror: MirrorTopic, error: LinkEngineError) -> TaskError:
    if error.code in _FATAL:
        note_failure(mirror, error, fatal=True, now=timezone.now())
    _log.info("sync.failed", mirror=mirror.name, link=mirror.link.name, code=error.code)
    return TaskError(code=error.code, message=f"{mirror.name}: {error.message}")


def _refused(mirror: MirrorTopic, step: RefusedStep) -> TaskError:
    """Return what the destination refuses. It is retried with each run; a stop retries it too and reports it."""
    return TaskError(code=step.code, message=f"{mirror.name}: {step.name}={step.value or '(cluster default)'}: {step.message}")


def _unfinished(left: int) -> TaskError:
    message = (
        f"{plural(left, 'mirror topic')} not synced within {RUN_S:.0f} seconds. The next run follows at once, with them first."
    )
    return TaskError(code=ErrorCode.TIMEOUT_ERROR, message=message)


def _waiting(link: ClusterLink) -> list[int]:
    """Return the primary keys of the mirrors, beginning after the stored position."""
    keys, position = list(_mirrors(link).order_by("pk").values_list("pk", flat=True)), link.config_sync_position or 0
    return [key for key in keys if key > position] + [key for key in keys if key <= position]


def _mirrors(link: ClusterLink) -> QuerySet[MirrorTopic]:
    return link.mirrors.filter(state__in=SYNCED, deletion_requested_at=None, num_partitions__gt=0)


# --- AutoCreateMirror -------------------------------------------------------------------------------------------------
#
# Creates mirrors of the source topics that the link's filters include. A run tries a bounded number of topics.


AT_ONCE = 16  # topics checked in parallel; a check takes six requests, each with a round trip
TRIES_PER_RUN = 100  # each sends requests to both clusters; the next run follows at once if topics are left
# Errors that do not depend on the topic: the whole run ends with them.
_FOR_ALL = {
    ErrorCode.AUTHENTICATION_ERROR,
    ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
    ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
    ErrorCode.TIMEOUT_ERROR,
    ErrorCode.DESTINATION_UNAVAILABLE,
}
_STANDING_CODES = {
    CheckCode.MIRRORED_ELSEWHERE: ErrorCode.MIRROR_EXISTS_ERROR,
    CheckCode.NAME_FREE: ErrorCode.TOPIC_EXISTS_ERROR,
    CheckCode.MIRROR_NAME: ErrorCode.INVALID_TOPIC,
}


def create_mirrors(link: ClusterLink) -> TaskOutcome:
    """List the topics of both clusters, check each source topic, and create the missing mirrors."""
    now = timezone.now()
    parse_filters(link.config(AUTO_CREATE_FILTERS))  # raises if an older version stored filters that cannot be parsed
    topics = jobs.list_topics(plans.source_address(link))
    taken = [topic.name for topic in jobs.list_topics(link.destination.address, with_configs=False)]
    SourceTopic.objects.store_listing(topics, now=now, link=link)
    ClusterLink.objects.filter(pk=link.pk).update(topics_at=now if topics else None)
    checked_topics = list(check_topics([_topic(topic) for topic in topics], facts_of_link(link, taken=taken)))
    waiting = _in_order(link, [checked for checked in checked_topics if checked.standing is MirrorabilityStatus.WAITING])
    created, failures = _create_missing(link, waiting[:TRIES_PER_RUN], now=now)
    _delete_failures(link, waiting=waiting)
    problems = [problem for checked in checked_topics for problem in _problems(checked)]
    return TaskOutcome(
        errors=(*failures, *problems),
        summary=_creation_summary(checked_topics, created=created),
        changes=created,
        more=_any_untried(link, waiting[TRIES_PER_RUN:], now=now),
    )


def _topic(topic: TopicDescription) -> ListedTopic:
    return ListedTopic(name=topic.name, internal=topic.internal, is_mirror=has_mirror_configs(topic.configs))


def _in_order(link: ClusterLink, waiting: Sequence[CheckedTopic]) -> list[CheckedTopic]:
    """Return topics that were never tried first, then those with the oldest attempt, so that each topic gets its turn."""
    tried = dict(AutoCreateFailure.objects.filter(link=link).values_list("source_topic", "tried_at"))
    return sorted(waiting, key=lambda checked: tried[checked.topic].timestamp() if checked.topic in tried else 0.0)


def _any_untried(link: ClusterLink, rest: Sequence[CheckedTopic], *, now: datetime) -> bool:
    """Return whether a topic was not tried in this interval yet. Topics that failed wait for the next interval."""
    interval = timedelta(milliseconds=int(link.config(TASKS[TaskName.AUTO_CREATE].interval_config)))
    recent = AutoCreateFailure.objects.filter(link=link, tried_at__gt=now - interval)
    return not {checked.topic for checked in rest} <= set(recent.values_list("source_topic", flat=True))


def _create_missing(link: ClusterLink, waiting: Sequence[CheckedTopic], *, now: datetime) -> tuple[int, list[TaskError]]:
    created, failures = 0, []
    for topic, refusal in _checked(link, [checked.topic for checked in waiting], now=now):
        if refusal is not None:
            if refusal.code in _FOR_ALL:
                raise refusal
            _note_failure(link, topic, refusal, now=now)
            failures.append(TaskError(code=refusal.code, message=f"{topic}: {refusal.message}"))
            continue
        try:
            auto_create(link=link, source_topic=topic, now=now)
            created += 1
        except BadRequestError:  # a user created it first
            continue
        except ConflictError:  # since then the link was paused or deleted, its filters changed, or a namespace reserved
            if not _may_continue(link):
                break
    return created, failures


def _checked(link: ClusterLink, topics: Sequence[str], *, now: datetime) -> Iterator[tuple[str, LinkEngineError | None]]:
    """Yield each topic with the clusters' refusal, in order; ``AT_ONCE`` topics are checked in parallel."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="check-mirror") as pool:
        for first in range(0, len(topics), AT_ONCE):
            batch = topics[first : first + AT_ONCE]
            setups = [plans.setup_of(unsaved_mirror(link=link, source_topic=topic, by=ENGINE, now=now)) for topic in batch]
            yield from zip(batch, list(pool.map(refusal_of, setups)), strict=True)


def refusal_of(setup: MirrorSetup) -> LinkEngineError | None:
    """Check with both clusters whether the mirror can be created. Runs in a thread without a database connection."""
    try:
        jobs.check_mirror_topic(setup)
    except LinkEngineError as error:
        return error
    return None


def check_together(mirrors: Sequence[MirrorTopic]) -> list[LinkEngineError | None]:
    """Return why the clusters refuse to create each of the mirrors, None if they do not; ``AT_ONCE`` are checked at once."""
    try:
        setups = [plans.setup_of(mirror) for mirror in mirrors]
    except LinkEngineError as error:  # the link's properties cannot be used
        return [error] * len(mirrors)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="check-mirror") as pool:
        return list(pool.map(refusal_of, setups))


def _may_continue(link: ClusterLink) -> bool:
    rows = ClusterLink.objects.filter(pk=link.pk, deletion_requested_at=None).exclude(state=LinkState.PAUSED)
    return rows.filter(configs__name=AUTO_CREATE, configs__value="true").exists()


def _note_failure(link: ClusterLink, topic: str, error: LinkEngineError, *, now: datetime) -> None:
    facts = {"code": error.code, "message": error.message, "tried_at": now}
    AutoCreateFailure.objects.update_or_create(
        link=link, source_topic=topic, defaults=facts, create_defaults={**facts, "since": now}
    )


def _delete_failures(link: ClusterLink, *, waiting: Sequence[CheckedTopic]) -> None:
    """Delete failures of topics that no longer wait for their mirror."""
    mirrored = link.mirrors.values_list("source_topic", flat=True)
    waited_for = {checked.topic for checked in waiting} - set(mirrored)
    stale = [row.pk for row in AutoCreateFailure.objects.filter(link=link) if row.source_topic not in waited_for]
    AutoCreateFailure.objects.filter(pk__in=stale).delete()


def _problems(checked: CheckedTopic) -> list[TaskError]:
    return [
        TaskError(code=_STANDING_CODES[check.code], message=f"{checked.topic}: {check.finding} {check.next_step}")
        for check in checked.problems
    ]


def _creation_summary(checked_topics: Sequence[CheckedTopic], *, created: int) -> str:
    mirrored = sum(1 for checked in checked_topics if checked.standing is MirrorabilityStatus.MIRRORED) + created
    return f"{mirrored} of {plural(len(checked_topics), 'source topic')} mirrored; {created} added by the last run."
