"""When to submit which copy job, as a pure decision over what is wanted, what runs and what was seen lately.

Theory of operation. Every wanted partition should lie in a running slice that will not end soon. One that lies in none (a new
mirror, a resumed one, a slice that died) gets a job at once, which ends together with the common plan where that is worth it.
Shortly before a slice ends, one successor is submitted for everything that ends about then; it waits for the leases and takes
over without a hole. A partition of which nothing was heard for a while is taken out of its slice and submitted anew: should the
old task be alive after all, the lease decides which of the two copies. So is one that its slice has let go of (ordered to stop
and wanted again, or fenced), though the slice reports it to its end; it has no more haste than a newcomer. A slice gets time to
start, unless the worker that took it is gone: nobody knows whether it reached Spark, and to submit it twice does no harm. A
slice that was given up altogether because nothing was heard of it is named in the decision: something is wrong with what runs
it. Each job holds a slot of Spark to its end, so a row of new mirrors does not get a job each: the more run, the longer
newcomers are gathered for the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from linkengine.domain.moments import AHEAD_MS, is_recent
from linkengine.domain.plans import CopyTuning

SILENT_MS = 6_000  # tasks report twice a second and a lease lasts 4 s: whoever is silent for longer has lost it
GATHER_MS = 4_000  # per job beside the first: six or seven within a slice where a new mirror comes each second
START_MS = 30_000  # a cold Spark server on a busy machine; one that is not there fails at once instead


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSlice:
    """A slice that was submitted and has not come back. ``keys`` are those it still answers for."""

    slice_id: str
    revision: int
    started_at_ms: int
    ends_at_ms: int
    keys: frozenset[str]
    orphaned: bool = False  # nobody waits for it any more


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlice:
    """A slice to submit now."""

    keys: tuple[str, ...]
    ends_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDecision:
    """What to do: ``submit`` these, and note which keys the running slices answer for from now on."""

    submit: tuple[NewSlice, ...] = ()
    answering: Mapping[str, frozenset[str]] = field(default_factory=dict)  # slice id -> keys; empty: given up
    silent: frozenset[str] = frozenset()  # slices of which nothing was heard for too long, though somebody waits for them


def decide_slices(
    *,
    wanted: Collection[str],
    running: Iterable[RunningSlice],
    last_seen_ms: Mapping[str, int],
    revision: int,
    now_ms: int,
    tuning: CopyTuning,
    released: Mapping[str, str] = MappingProxyType({}),
) -> SliceDecision:
    """Decide for one link. Deterministic; what it submits must be part of ``running`` at the next call.

    ``released``: by which slice a partition was let go of, where that is the last that was heard of it.
    """
    slices = [_without_released(one, released) for one in running]
    answering = {
        one.slice_id: _answered_by(one, wanted=wanted, last_seen_ms=last_seen_ms, revision=revision, now_ms=now_ms)
        for one in slices
    }
    ends = _ends(slices, answering, latest_ms=now_ms + tuning.slice_ms + AHEAD_MS)
    missing = sorted(set(wanted) - ends.keys())
    ending = _ending(ends, now_ms=now_ms, tuning=tuning)
    submit = []
    if ending:
        submit.append(NewSlice(keys=tuple(sorted([*ending, *missing])), ends_at_ms=now_ms + tuning.slice_ms))
    elif missing and _begins_now(missing, slices, answering, now_ms=now_ms):
        common_end = max(ends.values(), default=0)
        worth_joining = common_end - now_ms > 2 * tuning.overlap_ms
        submit.append(NewSlice(keys=tuple(missing), ends_at_ms=common_end if worth_joining else now_ms + tuning.slice_ms))
    silent = frozenset(
        one.slice_id
        for one in slices
        if not answering[one.slice_id] and not one.orphaned and not one.keys.isdisjoint(wanted)
        and one.revision == revision and one.ends_at_ms > now_ms
    )  # fmt: skip
    return SliceDecision(submit=tuple(submit), answering=answering, silent=silent)


def _without_released(one: RunningSlice, released: Mapping[str, str]) -> RunningSlice:
    """Its task does not take a partition up again, though it reports it for as long as it has others."""
    return replace(one, keys=frozenset(key for key in one.keys if released.get(key) != one.slice_id))


def _answered_by(
    one: RunningSlice, *, wanted: Collection[str], last_seen_ms: Mapping[str, int], revision: int, now_ms: int
) -> frozenset[str]:
    if one.revision != revision or one.ends_at_ms <= now_ms:
        return frozenset()
    starting = is_recent(one.started_at_ms, now_ms=now_ms, within_ms=START_MS) and not one.orphaned
    return frozenset(
        key
        for key in one.keys
        if key in wanted and (starting or is_recent(last_seen_ms.get(key, 0), now_ms=now_ms, within_ms=SILENT_MS))
    )


def _begins_now(
    missing: Collection[str], slices: Collection[RunningSlice], answering: Mapping[str, frozenset[str]], *, now_ms: int
) -> bool:
    """Tell whether partitions in no slice get a job now: what a slice has lost at once, newcomers once enough are gathered."""
    if any(not one.keys.isdisjoint(missing) for one in slices):
        return True
    started_ms = [one.started_at_ms for one in slices if answering[one.slice_id]]
    beside = len(started_ms) - 1
    return beside < 1 or not is_recent(max(started_ms), now_ms=now_ms, within_ms=GATHER_MS * beside)


def _ends(slices: Iterable[RunningSlice], answering: Mapping[str, frozenset[str]], *, latest_ms: int) -> dict[str, int]:
    """Answer until when each partition is copied. One that no slice can have was fixed before a clock was set back."""
    ends: dict[str, int] = {}
    for one in slices:
        for key in answering[one.slice_id]:
            ends[key] = max(ends.get(key, 0), one.ends_at_ms if one.ends_at_ms <= latest_ms else 0)
    return ends


def _ending(ends: Mapping[str, int], *, now_ms: int, tuning: CopyTuning) -> list[str]:
    """Pick what needs a successor now, and with it what would need one soon, so that plans grow together again."""
    left = {key: end - now_ms for key, end in ends.items()}
    if not any(one <= tuning.overlap_ms for one in left.values()):
        return []
    return [key for key, one in left.items() if one <= 2 * tuning.overlap_ms]
