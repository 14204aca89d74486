"""The recurring task AutoCreateMirror: creates mirrors of the source topics that the link's filters include.

A run tries a bounded number of topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from django.utils import timezone

from console.actors import ENGINE
from console.errors import BadRequestError, ConflictError
from console.links.queries import surroundings_of
from console.mirrors.actions import auto_create, draft
from console.models import AutoCreateFailure, ClusterLink, MirrorTopic
from console.reconciling import plans
from console.web.numbers import plural
from console.workflows.probes import store_topics
from linkengine import jobs
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TASKS, TaskError, TaskName, TaskOutcome
from linkengine.domain.mirrorability import CheckCode, JudgedTopic, Standing, Topic, judge_all
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.names import parse_filters
from linkengine.domain.plans import TopicDescription
from linkengine.domain.states import LinkState

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
_CODES = {
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
    store_topics(topics, now=now, link=link)
    ClusterLink.objects.filter(pk=link.pk).update(topics_at=now if topics else None)
    judged_topics = list(judge_all([_topic(topic) for topic in topics], surroundings_of(link, taken=taken)))
    waiting = _in_order(link, [judged for judged in judged_topics if judged.standing is Standing.WAITING])
    created, failures = _create(link, waiting[:TRIES_PER_RUN], now=now)
    _delete_failures(link, waiting=waiting)
    problems = [problem for judged in judged_topics for problem in _problems(judged)]
    return TaskOutcome(
        errors=(*failures, *problems),
        summary=_summary(judged_topics, created=created),
        changes=created,
        more=_any_untried(link, waiting[TRIES_PER_RUN:], now=now),
    )


def _topic(topic: TopicDescription) -> Topic:
    return Topic(name=topic.name, internal=topic.internal, is_mirror=has_mirror_configs(topic.configs))


def _in_order(link: ClusterLink, waiting: Sequence[JudgedTopic]) -> list[JudgedTopic]:
    """Return topics that were never tried first, then those with the oldest attempt, so that each topic gets its turn."""
    tried = dict(AutoCreateFailure.objects.filter(link=link).values_list("source_topic", "tried_at"))
    return sorted(waiting, key=lambda judged: tried[judged.topic].timestamp() if judged.topic in tried else 0.0)


def _any_untried(link: ClusterLink, rest: Sequence[JudgedTopic], *, now: datetime) -> bool:
    """Return whether a topic was not tried in this interval yet. Topics that failed wait for the next interval."""
    interval = timedelta(milliseconds=int(link.config(TASKS[TaskName.AUTO_CREATE].interval_config)))
    recent = AutoCreateFailure.objects.filter(link=link, tried_at__gt=now - interval)
    return not {judged.topic for judged in rest} <= set(recent.values_list("source_topic", flat=True))


def _create(link: ClusterLink, waiting: Sequence[JudgedTopic], *, now: datetime) -> tuple[int, list[TaskError]]:
    created, failures = 0, []
    for topic, refusal in _checked(link, [judged.topic for judged in waiting], now=now):
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
            setups = [plans.setup_of(draft(link=link, source_topic=topic, by=ENGINE, now=now)) for topic in batch]
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


def _delete_failures(link: ClusterLink, *, waiting: Sequence[JudgedTopic]) -> None:
    """Delete failures of topics that no longer wait for their mirror."""
    mirrored = link.mirrors.values_list("source_topic", flat=True)
    waited_for = {judged.topic for judged in waiting} - set(mirrored)
    stale = [row.pk for row in AutoCreateFailure.objects.filter(link=link) if row.source_topic not in waited_for]
    AutoCreateFailure.objects.filter(pk__in=stale).delete()


def _problems(judged: JudgedTopic) -> list[TaskError]:
    return [
        TaskError(code=_CODES[check.code], message=f"{judged.topic}: {check.finding} {check.next_step}")
        for check in judged.problems
    ]


def _summary(judged_topics: Sequence[JudgedTopic], *, created: int) -> str:
    mirrored = sum(1 for judged in judged_topics if judged.standing is Standing.MIRRORED) + created
    return f"{mirrored} of {plural(len(judged_topics), 'source topic')} mirrored; {created} added by the last run."
