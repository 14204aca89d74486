"""How long a promotion that is not through waits until it looks again, and what wakes it earlier.

A look asks both clusters about one topic, its configs and its groups. With many mirrors waiting, looks must become rare; so
that nobody waits for the next one in vain, what it waits for wakes it: an empty lag as the copier reports it, or a run of the
task that carries over what was missing.
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
LONGEST = timedelta(seconds=1.25 * LONGEST_S)  # of a mirror; failed steps spread their pauses a quarter beyond
URGENT_S = 5.0  # topics that nobody can write to meanwhile, so the obstacle is looked for again soon
WAKE_MS = 5_000  # between wakings of one mirror by an empty lag: something else may hold it, an open transaction for instance
FEW_FAILURES = 4
_DOUBLINGS = 12  # beyond them the pause is the longest anyway
_GROUPS = (ErrorCode.WAITING_FOR_GROUPS, ErrorCode.CONSUMER_GROUP_IN_USE_ERROR)
_ENDED_BY: Mapping[TaskName, tuple[ErrorCode, ...]] = MappingProxyType(
    {
        TaskName.CONSUMER_OFFSETS: _GROUPS,
        TaskName.TOPIC_CONFIGS: (ErrorCode.WAITING_FOR_CONFIGS, ErrorCode.WAITING_FOR_PARTITIONS),
    }
)
Rows = Mapping[str, MirrorPartition]


def pause_s(looks: int) -> float:
    """Answer the seconds until the next look after so many in vain: doubling, a quarter more or less by chance."""
    doubled: float = FIRST_S * 2 ** min(looks, _DOUBLINGS)
    return min(LONGEST_S, doubled * (0.75 + random() / 2))  # noqa: S311 - spreads the looks


def is_urgent(mirror: MirrorTopic) -> bool:
    """Tell whether producers are kept out until the mirror's next step: a stop that waits for nobody, a reversal."""
    if mirror.state != MirrorState.PENDING_STOPPED:
        return mirror.state in (MirrorState.PENDING_SYNCHRONIZE, MirrorState.PENDING_MIRROR)
    return mirror.stop_reason == StopReason.FAILOVER or mirror.fencing_at is not None or bool(mirror.reversal)


def longest_s(mirror: MirrorTopic) -> float:
    """Answer the longest pause behind a step that failed."""
    return URGENT_S if is_urgent(mirror) else LONGEST_S


def takes_turns(mirror: MirrorTopic) -> bool:
    """Tell whether a step has failed so often that its pause would be longer, were it not urgent.

    In an outage there may be a thousand of these, each of which takes a thread until it has failed again.
    """
    return is_urgent(mirror) and mirror.retry_count > FEW_FAILURES


def postpone(*, mirror: MirrorTopic, looks: int, wait_s: float, now: datetime) -> None:
    """Let the reconciler go on with a promotion later; a stop that was ordered meanwhile is not held up."""
    waiting = MirrorTopic.objects.filter(pk=mirror.pk, state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.PROMOTE)
    waiting.update(retry_count=looks, retry_at=now + timedelta(seconds=wait_s))


def is_postponed(mirror: MirrorTopic, *, now: datetime) -> bool:
    """Tell whether the mirror's next step waits for its time."""
    return not is_due(mirror.retry_at, now=now, longest=LONGEST)


def caught_up(*, mirrors: Iterable[MirrorTopic], rows: Rows, now: datetime) -> Iterator[MirrorTopic]:
    """List the postponed promotions that wait for a lag which is no more."""
    for mirror in mirrors:
        if mirror.state != MirrorState.PENDING_STOPPED or mirror.stop_reason != StopReason.PROMOTE:
            continue
        waits = any(one.code == ErrorCode.WAITING_FOR_LAG for one in mirror.transition_errors.all())
        if is_postponed(mirror, now=now) and waits and _is_level(mirror, rows):
            yield mirror


def wake_after(*, link: ClusterLink, task: TaskName, outcome: TaskOutcome) -> bool:
    """Wake the promotions that may have waited for this run; answer whether there are any.

    Groups also become equal by other hands than ours, so each run over them counts.
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
