"""Values: the state of a producer at the leader of a partition, and a producer of a transactional id."""

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
