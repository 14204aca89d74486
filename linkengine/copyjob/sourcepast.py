"""How far a source partition was read, as (leader epoch, end offset), across leaders and owners. No I/O.

Before a leader of another epoch is read, it is asked where that epoch ends in its log (``history``, KIP-101, KIP-320): if that
is before the end offset, the source has lost records that were copied. The pair therefore outlives leaders, attempts and
owners: it is passed on with the lease and in reports.
"""

from __future__ import annotations

from linkengine.copyjob.pieces import Origin


class SourcePast:
    """``seen`` = (epoch, end): all offsets before ``end`` were read under leader epoch ``epoch`` or earlier; None: unknown."""

    __slots__ = ("proven", "seen")

    def __init__(self, seen: tuple[int, int] | None) -> None:
        self.seen = seen
        self.proven = False  # this attempt has read from the current leader: the mirror's records are of its epoch or earlier

    def inherit(self, seen: tuple[int, int] | None) -> None:
        """Use what the previous owner passed on when it released the lease; that is newer than any report."""
        self.seen = seen or self.seen
        self.proven = False

    def covers(self, origin: Origin) -> bool:
        """Return whether this leader needs no check: all that was read was read under its own epoch, or nothing is known."""
        return self.seen is None or self.seen[0] in (-1, origin.leader.epoch)

    def epoch_of(self, origin: Origin | None) -> int | None:
        """Return the current leader's epoch if this attempt has read from it, else None."""
        return origin.leader.epoch if origin is not None and self.proven else None

    def leave(self, origin: Origin | None, *, end: int) -> None:
        """Record that the current leader was read up to ``end``, before another leader or attempt follows."""
        if origin is not None and self.proven:
            self.seen = (origin.leader.epoch, end)
        self.proven = False

    def end_attempt(self, origin: Origin | None, *, end: int | None) -> None:
        """End the attempt; only what was sent, up to ``end``, counts as read, the rest was dropped."""
        if end is not None:
            self.leave(origin, end=end)
            self.seen = (self.seen[0], min(self.seen[1], end)) if self.seen is not None else None
        self.proven = False

    def handed_over(self, origin: Origin | None, *, end: int | None) -> tuple[int, int] | None:
        """Return (epoch, end) for the next owner of a mirror that ends at ``end`` with nothing in flight; None if unknown."""
        epoch = self.epoch_of(origin)
        if epoch is None and self.seen is not None:
            epoch = self.seen[0]
        return None if epoch is None or end is None else (epoch, end)
