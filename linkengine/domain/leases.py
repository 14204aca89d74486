"""Values of the partition lease: the words both sides of that door share.

A lease decides who *should* write a mirror partition; its generation travels as the coordinator epoch of every marker, by
which the destination's broker decides who *can*. The lease may therefore be lost at any time without harm: it saves work, the
broker's epochs and compare-and-append keep the mirror right.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_GENERATION = 1  # of a mirror's first owner, or of whoever comes first after the lease lost its memory

# beyond that nobody has looked at the source since; a planned move takes a second, a pause or an outage of ours takes longer
VOUCHED_MS = 60_000


class CoordinationUnavailableError(Exception):
    """Redis did not answer in time. No news, not bad news: go on until the lease's deadline, then stop writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One owner's hold on one partition."""

    key: str  # names the mirror partition
    generation: int  # grows with every hold, outlives the lease; the coordinator epoch of markers
    clean: bool  # the previous owner released it, or there never was one; False: it expired, late writes may be on their way
    valid_until: float  # local monotonic seconds as of the acquire; the current deadline lives in the lease
    armed: bool = False  # only where it is not clean: markers of an earlier owner, not only data, may be on their way
    # of a clean hand-over: the source's leader epoch under which all below the mirror's end was read, and that end
    seen: tuple[int, int] | None = None
    # the same of an owner that ended in good order and had nobody between itself and us; markers of one before may be under way
    left: tuple[int, int] | None = None
    rested_ms: int = 0  # of a clean hand-over: for how long nobody had the partition

    @property
    def vouched(self) -> tuple[int, int] | None:
        """``seen``, as long as it says something of the source: later on it may have been set back, and count epochs anew."""
        return self.seen if self.rested_ms <= VOUCHED_MS else None


def coordinator_epoch_for(generation: int, *, closes: bool = False) -> int:
    """Answer the number a marker carries: even while a mirror is written, odd on the fence that closes it for good."""
    return 2 * generation + closes


def generation_of(coordinator_epoch: int) -> int:
    """Answer the generation of the last marker's writer; -1 where there was no marker."""
    return coordinator_epoch // 2


def is_closed(coordinator_epoch: int) -> bool:
    """Tell whether the last marker was a fence: the mirror was stopped, whatever orders and leases say."""
    return coordinator_epoch >= 0 and coordinator_epoch % 2 == 1
