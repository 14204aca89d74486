"""Values of the partition lease, shared by ``coordination.lease`` and its users.

A lease decides which copy worker *should* write a mirror partition. Its generation is the coordinator epoch of every marker
(``coordinator_epoch_for``), by which the destination's broker decides which worker *can*. Losing a lease is therefore always
safe: the lease saves work, and the broker's epochs and conditional appends keep the mirror correct.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_GENERATION = 1  # of a mirror's first owner, or of the first owner after Redis lost its data

# How long ``seen`` is trusted: without an owner, nothing notices that the source was restored. A planned move takes a second, a
# pause or an outage takes longer.
SEEN_TRUSTED_MS = 60_000


class CoordinationUnavailableError(Exception):
    """Redis did not respond in time. It says nothing about the lease: write until its deadline, then stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An owner's lease of a partition, as it was acquired."""

    key: str  # names the mirror partition
    generation: int  # grows with every acquire, outlives the lease; the coordinator epoch of markers is derived from it
    clean: bool  # the previous owner released it, or there was none; False: it expired, and late requests may be in flight
    valid_until: float  # local monotonic seconds as of the acquire; the current deadline is kept by the lease
    markers_announced: bool = False  # only if not clean: markers of an earlier owner, not only data, may be in flight
    # of a clean hand-over: the source's leader epoch under which everything below the mirror's end was read, and that end
    seen: tuple[int, int] | None = None
    # the same of the previous owner if it ended in an orderly way; markers of an owner before it may still be in flight
    left: tuple[int, int] | None = None
    rested_ms: int = 0  # of a clean hand-over: for how long the partition had no owner

    @property
    def trusted_seen(self) -> tuple[int, int] | None:
        """``seen``, while it is recent; after a longer time the source may have been restored and its epochs started anew."""
        return self.seen if self.rested_ms <= SEEN_TRUSTED_MS else None


def coordinator_epoch_for(generation: int, *, closes: bool = False) -> int:
    """Return the coordinator epoch of a marker: even while a mirror is written, odd on the fence that ends it permanently."""
    return 2 * generation + closes


def generation_of(coordinator_epoch: int) -> int:
    """Return the generation of the owner that wrote the last marker; -1 if there was no marker."""
    return coordinator_epoch // 2


def is_closed(coordinator_epoch: int) -> bool:
    """Return whether the last marker was a fence: the mirror was stopped, whatever assignments and leases say."""
    return coordinator_epoch >= 0 and coordinator_epoch % 2 == 1
