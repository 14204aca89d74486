"""Which task of a slice copies which partitions: shares of about equal work, by what each partition moved lately. Pure.

Largest first, each to the share that has the least so far. Deterministic: the driver and every executor deal the same plan out
for themselves and come to the same shares.
"""

from __future__ import annotations

from collections.abc import Iterable

from linkengine.domain.plans import PartitionAssignment

BASE_BYTES_PER_S = 10_000.0  # what looking after an idle partition counts; spreads those of unknown rate evenly


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
