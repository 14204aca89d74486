"""What one partition's reader knows of its source's past: under which leader epoch everything so far was read. No I/O.

Kept through leaders and attempts of a hold, handed to the next owner with the lease and in reports, so
that every new leader of the source can be asked whether it still has that (``history.py``).
"""

from __future__ import annotations

from linkengine.copyjob.pieces import Origin


class SourcePast:
    """All below ``seen[1]`` was read under leader epoch ``seen[0]`` or earlier ones; None: not known."""

    __slots__ = ("proven", "seen")

    def __init__(self, seen: tuple[int, int] | None) -> None:
        self.seen = seen
        self.proven = False  # the present leader served this attempt: what the mirror has was read under its epoch or earlier

    def inherit(self, seen: tuple[int, int] | None) -> None:
        """Take over what the former owner knew when it let go; it is newer than any report."""
        self.seen = seen or self.seen
        self.proven = False

    def covers(self, origin: Origin) -> bool:
        """Tell whether nothing has to be asked of this leader: what was read was read under its own epoch."""
        return self.seen is None or self.seen[0] in (-1, origin.leader.epoch)

    def epoch_of(self, origin: Origin | None) -> int | None:
        """Answer the epoch that vouches for what the mirror has now."""
        return origin.leader.epoch if origin is not None and self.proven else None

    def leave(self, origin: Origin | None, *, end: int) -> None:
        """The present leader, or the attempt, is over: remember what was read from it."""
        if origin is not None and self.proven:
            self.seen = (origin.leader.epoch, end)
        self.proven = False

    def end_attempt(self, origin: Origin | None, *, end: int | None) -> None:
        """Nothing beyond ``end`` was sent; what was read beyond is thrown away, and nobody has to vouch for it any more."""
        if end is not None:
            self.leave(origin, end=end)
            self.seen = (self.seen[0], min(self.seen[1], end)) if self.seen is not None else None
        self.proven = False

    def handed_over(self, origin: Origin | None, *, end: int | None) -> tuple[int, int] | None:
        """Answer what the next owner may rely on, where the mirror ends at ``end`` and nothing is on its way."""
        epoch = self.epoch_of(origin)
        if epoch is None and self.seen is not None:
            epoch = self.seen[0]
        return None if epoch is None or end is None else (epoch, end)
