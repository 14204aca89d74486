"""AutoCreateMirror: mirrors the source topics that the link's filters choose, a bounded number per run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from django.utils import timezone

from console.actions.mirrors import auto_create, draft
from console.actors import ENGINE
from console.errors import BadRequestError, ConflictError
from console.models import AutoCreateFailure, ClusterLink
from console.presenters.numbers import plural
from console.queries.mirrorability import surroundings_of
from console.reconciling import plans
from console.tasks.looking import store_topics
from linkengine import jobs
from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.filters import parse_filters
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TASKS, TaskError, TaskName, TaskOutcome
from linkengine.domain.mirrorability import CheckCode, Standing, Topic, Verdict
from linkengine.domain.mirrorchecks import judge_all
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.plans import TopicDescription
from linkengine.domain.states import LinkState

AT_ONCE = 16  # topics that the clusters are asked about at the same time; a look is six requests, each of a journey and back
TRIES_PER_RUN = 100  # each asks both clusters; the next run follows at once where others wait for their turn
# Nothing about one topic: the whole run ends and says so.
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
    """Look at both clusters afresh, judge every source topic and create what is missing."""
    now = timezone.now()
    parse_filters(link.config(AUTO_CREATE_FILTERS))  # raises where an older version let in what cannot be read
    topics = jobs.list_topics(plans.source_address(link))
    taken = [one.name for one in jobs.list_topics(link.destination.address, with_configs=False)]
    store_topics(topics, now=now, link=link)
    ClusterLink.objects.filter(pk=link.pk).update(topics_at=now if topics else None)
    verdicts = list(judge_all([_topic(one) for one in topics], surroundings_of(link, taken=taken)))
    waiting = _in_order(link, [one for one in verdicts if one.standing is Standing.WAITING])
    created, failures = _create(link, waiting[:TRIES_PER_RUN], now=now)
    _forget_failures(link, waiting=waiting)
    problems = [problem for one in verdicts for problem in _problems(one)]
    return TaskOutcome(
        errors=(*failures, *problems),
        summary=_summary(verdicts, created=created),
        changes=created,
        more=_any_untried(link, waiting[TRIES_PER_RUN:], now=now),
    )


def _topic(one: TopicDescription) -> Topic:
    return Topic(name=one.name, internal=one.internal, is_mirror=looks_like_mirror(one.configs))


def _in_order(link: ClusterLink, waiting: Sequence[Verdict]) -> list[Verdict]:
    """Put topics nobody has tried first, then those whose last try is oldest, so that none keeps others from their turn."""
    tried = dict(AutoCreateFailure.objects.filter(link=link).values_list("source_topic", "tried_at"))
    return sorted(waiting, key=lambda one: tried[one.topic].timestamp() if one.topic in tried else 0.0)


def _any_untried(link: ClusterLink, rest: Sequence[Verdict], *, now: datetime) -> bool:
    """Tell whether a topic had no turn in this interval yet; those that were tried in vain wait for the next one."""
    interval = timedelta(milliseconds=int(link.config(TASKS[TaskName.AUTO_CREATE].interval_config)))
    lately = AutoCreateFailure.objects.filter(link=link, tried_at__gt=now - interval)
    return not {one.topic for one in rest} <= set(lately.values_list("source_topic", flat=True))


def _create(link: ClusterLink, waiting: Sequence[Verdict], *, now: datetime) -> tuple[int, list[TaskError]]:
    created, failures = 0, []
    for topic, refusal in _checked(link, [one.topic for one in waiting], now=now):
        if refusal is not None:
            if refusal.code in _FOR_ALL:
                raise refusal
            _note_failure(link, topic, refusal, now=now)
            failures.append(TaskError(code=refusal.code, message=f"{topic}: {refusal.message}"))
            continue
        try:
            auto_create(link=link, source_topic=topic, now=now)
            created += 1
        except BadRequestError:  # a person was quicker
            continue
        except ConflictError:  # meanwhile: the link paused or deleted, its filters changed, a namespace reserved
            if not _goes_on(link):
                break
    return created, failures


def _checked(link: ClusterLink, topics: Sequence[str], *, now: datetime) -> Iterator[tuple[str, LinkEngineError | None]]:
    """Answer topic by topic, in their order, what the clusters refuse; some are asked about at once, then the next ones."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="check-mirror") as pool:
        for first in range(0, len(topics), AT_ONCE):
            some = topics[first : first + AT_ONCE]
            setups = [plans.setup_of(draft(link=link, source_topic=one, by=ENGINE, now=now)) for one in some]
            yield from zip(some, list(pool.map(_refusal, setups)), strict=True)


def _refusal(setup: MirrorSetup) -> LinkEngineError | None:
    """Ask both clusters whether the mirror can be made. In a thread without a connection to the database."""
    try:
        jobs.check_mirror(setup)
    except LinkEngineError as error:
        return error
    return None


def _goes_on(link: ClusterLink) -> bool:
    rows = ClusterLink.objects.filter(pk=link.pk, deletion_requested_at=None).exclude(state=LinkState.PAUSED)
    return rows.filter(configs__name=AUTO_CREATE, configs__value="true").exists()


def _note_failure(link: ClusterLink, topic: str, error: LinkEngineError, *, now: datetime) -> None:
    facts = {"code": error.code, "message": error.message, "tried_at": now}
    AutoCreateFailure.objects.update_or_create(
        link=link, source_topic=topic, defaults=facts, create_defaults={**facts, "since": now}
    )


def _forget_failures(link: ClusterLink, *, waiting: Sequence[Verdict]) -> None:
    """Keep failures only of topics that still wait for their mirror."""
    mirrored = link.mirrors.values_list("source_topic", flat=True)
    waited_for = {one.topic for one in waiting} - set(mirrored)
    gone = [row.pk for row in AutoCreateFailure.objects.filter(link=link) if row.source_topic not in waited_for]
    AutoCreateFailure.objects.filter(pk__in=gone).delete()


def _problems(verdict: Verdict) -> list[TaskError]:
    return [
        TaskError(code=_CODES[one.code], message=f"{verdict.topic}: {one.finding} {one.next_step}") for one in verdict.problems
    ]


def _summary(verdicts: Sequence[Verdict], *, created: int) -> str:
    mirrored = sum(1 for one in verdicts if one.standing is Standing.MIRRORED) + created
    return f"{mirrored} of {plural(len(verdicts), 'source topic')} mirrored; {created} added by the last run."
