"""When a waiting promotion checks again, and what triggers an earlier check.

A check sends requests to both clusters for the topic, its configs and its groups. With many mirrors waiting, checks must
become rare (exponential backoff). So that no promotion waits longer than necessary, the end of its obstacle triggers a check:
a lag of zero that a copy worker reports, or a run of the recurring task that syncs what was missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from random import random
from types import MappingProxyType

from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling.plans import mirror_key
from linkengine.domain.errors import ErrorCode
from linkengine.domain.linktasks import TaskName, TaskOutcome
from linkengine.domain.moments import is_due
from linkengine.domain.states import MirrorState, StopReason

FIRST_S, LONGEST_S = 0.1, 300.0
LONGEST = timedelta(seconds=1.25 * LONGEST_S)  # of a mirror; the pauses after failed steps vary by a quarter
URGENT_S = 5.0  # for topics that no producer can write to until the next step
WAKE_MS = (
    5_000  # between early checks of a mirror because of lag zero: it may have other obstacles, an open transaction for example
)
FEW_FAILURES = 4
_DOUBLINGS = 12  # the pause is the longest from there on
_GROUPS = (ErrorCode.WAITING_FOR_GROUPS, ErrorCode.CONSUMER_GROUP_IN_USE_ERROR)
_ENDED_BY: Mapping[TaskName, tuple[ErrorCode, ...]] = MappingProxyType(
    {
        TaskName.CONSUMER_OFFSETS: _GROUPS,
        TaskName.TOPIC_CONFIGS: (ErrorCode.WAITING_FOR_CONFIGS, ErrorCode.WAITING_FOR_PARTITIONS),
    }
)
Rows = Mapping[str, MirrorPartition]


def pause_s(checks: int) -> float:
    """Return the seconds until the next check after so many: doubling, with a jitter of a quarter."""
    doubled: float = FIRST_S * 2 ** min(checks, _DOUBLINGS)
    return min(LONGEST_S, doubled * (0.75 + random() / 2))  # noqa: S311 - spreads the checks


def is_urgent(mirror: MirrorTopic) -> bool:
    """Return whether producers are kept out until the mirror's next step: a failover, a marked stop, or a reversal."""
    if mirror.state != MirrorState.PENDING_STOPPED:
        return mirror.state in (MirrorState.PENDING_SYNCHRONIZE, MirrorState.PENDING_MIRROR)
    return mirror.stop_reason == StopReason.FAILOVER or mirror.fencing_at is not None or bool(mirror.reversal)


def longest_s(mirror: MirrorTopic) -> float:
    """Return the longest pause after a failed step."""
    return URGENT_S if is_urgent(mirror) else LONGEST_S


def takes_turns(mirror: MirrorTopic) -> bool:
    """Return whether a step has failed so often that its pause would be longer if it were not urgent.

    In an outage there may be a thousand of these, each of which occupies a thread until it has failed again.
    """
    return is_urgent(mirror) and mirror.retry_count > FEW_FAILURES


def postpone(*, mirror: MirrorTopic, checks: int, wait_s: float, now: datetime) -> None:
    """Set when the reconciler continues a promotion. Does not delay a failover that was ordered since."""
    waiting = MirrorTopic.objects.filter(pk=mirror.pk, state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.PROMOTE)
    waiting.update(retry_count=checks, retry_at=now + timedelta(seconds=wait_s))


def is_postponed(mirror: MirrorTopic, *, now: datetime) -> bool:
    """Return whether the mirror's next step is not due yet."""
    return not is_due(mirror.retry_at, now=now, longest=LONGEST)


def caught_up(*, mirrors: Iterable[MirrorTopic], rows: Rows, now: datetime) -> Iterator[MirrorTopic]:
    """Yield the postponed promotions that wait for a lag which is zero now."""
    for mirror in mirrors:
        if mirror.state != MirrorState.PENDING_STOPPED or mirror.stop_reason != StopReason.PROMOTE:
            continue
        lagged = any(error.code == ErrorCode.WAITING_FOR_LAG for error in mirror.transition_errors.all())
        if is_postponed(mirror, now=now) and lagged and _is_level(mirror, rows):
            yield mirror


def wake_after(*, link: ClusterLink, task: TaskName, outcome: TaskOutcome) -> bool:
    """Make the promotions due that may have waited for this run. Returns whether there are any.

    Consumer offsets also become equal by commits of other clients, so each run over groups counts.
    """
    if task not in _ENDED_BY or not (outcome.changes or task is TaskName.CONSUMER_OFFSETS):
        return False
    waiting = MirrorTopic.objects.filter(link=link, state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.PROMOTE)
    keys = waiting.filter(transition_errors__code__in=_ENDED_BY[task]).values_list("pk", flat=True)
    return bool(MirrorTopic.objects.filter(pk__in=list(keys)).update(retry_at=None))


def _is_level(mirror: MirrorTopic, rows: Rows) -> bool:
    key = mirror_key(mirror)
    own = [rows.get(f"{key}/{number}") for number in range(mirror.num_partitions)]
    return all(
        row is not None and row.source_end is not None and row.mirror_end is not None and row.mirror_end >= row.source_end
        for row in own
    )
