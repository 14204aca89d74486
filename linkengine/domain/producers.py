"""Producers that write to a mirror partition: their state at the leader, and the coordinator epochs of their markers.

The coordinator epoch of a marker shows which owner wrote it, since it is derived from the generation of the owner's lease
(``workers``), and whether it ended the mirror.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The state of a producer id on a partition; all -1 if the leader has none (never written, or expired)."""

    epoch: int = -1
    last_sequence: int = -1
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProducer:
    """Producer id and epoch of a transactional id, from its coordinator."""

    producer_id: int
    epoch: int


def coordinator_epoch_for(generation: int, *, fence: bool = False) -> int:
    """Return the coordinator epoch of a marker: even while a mirror is written, odd for the fence of its stop."""
    return 2 * generation + fence


def generation_of(coordinator_epoch: int) -> int:
    """Return the generation of the owner that wrote the last marker; -1 if there was no marker."""
    return coordinator_epoch // 2


def is_fence(coordinator_epoch: int) -> bool:
    """Return whether the marker was the fence of a stop: the mirror was stopped, whatever assignments and leases say."""
    return coordinator_epoch >= 0 and coordinator_epoch % 2 == 1
