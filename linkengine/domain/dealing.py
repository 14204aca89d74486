"""How many tasks a slice has, and which copies which partitions: shares of about equal work, by what each moved lately. Pure.

A task holds a slot of Spark for as long as the slice lasts, and the partitions of one task share their requests. So another
task is taken only where there is work for it, or nobody knows yet. Partitions are dealt largest first, each to the share that
has the least so far. The driver deals; executors are told (``plantexts``), since theirs may be another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from linkengine.domain.plans import PartitionAssignment

UNKNOWN_PER_TASK = 4  # partitions whose rate nobody has measured: there may be a backlog
BYTES_PER_S_PER_TASK = 100e6  # a task copies several times as much; by then a second one gets on better
BASE_BYTES_PER_S = 10_000.0  # what looking after an idle partition counts; spreads those of unknown rate evenly


def tasks_for(rates: Sequence[float | None], *, most: int) -> int:
    """Answer how many tasks partitions of these rates (bytes/s; None: not measured yet) are worth, at least one."""
    unknown = sum(rate is None for rate in rates)
    measured = sum(rate for rate in rates if rate is not None)
    return max(1, min(most, ceil(unknown / UNKNOWN_PER_TASK + measured / BYTES_PER_S_PER_TASK)))


def deal(assignments: Iterable[PartitionAssignment], tasks: int) -> list[tuple[PartitionAssignment, ...]]:
    """Deal the partitions out to at most ``tasks`` non-empty shares; equal ones of a topic go to different shares."""
    shares: list[list[PartitionAssignment]] = [[] for _ in range(max(tasks, 1))]
    loads = [0.0] * len(shares)
    for one in sorted(assignments, key=lambda one: (-one.bytes_per_s, *_place(one))):
        lightest = min(range(len(shares)), key=lambda number: (loads[number], number))
        shares[lightest].append(one)
        loads[lightest] += one.bytes_per_s + BASE_BYTES_PER_S
    return [tuple(sorted(share, key=_place)) for share in shares if share]


def _place(one: PartitionAssignment) -> tuple[str, int]:
    return one.mirror_id, one.partition
