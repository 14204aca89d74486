"""Has a loss kept before a marker takes its place: nobody could tell it from other markers once the copier is dead."""

from __future__ import annotations

from collections.abc import Callable

from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Origin
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import GapReason

RETRY_S = 1.0  # while nobody keeps it


class Losses:
    """Asks beside the loop; the source is examined again where the answer comes too late."""

    def __init__(
        self,
        services: Services,
        *,
        keep: Callable[[tuple[str, OffsetRange]], None],
        told: Callable[[MirrorPartition, int, GapReason], None],
        counts: Callable[[MirrorPartition, int, Origin | None], bool],
    ) -> None:
        """Lose nothing yet. ``keep`` may raise CoordinationUnavailableError; ``told`` hears the end of what is kept.

        ``counts`` ends a wait and answers whether the leader of that attempt is the one to read: another one may have more.
        """
        self._services, self._keep, self._told, self._counts = services, keep, told, counts

    def tell(self, one: MirrorPartition, lost: OffsetRange) -> None:
        """Have offsets kept that are gone from the source; nothing is read meanwhile."""
        attempt, origin, one.examining = one.attempt, one.origin, True
        self._services.background.submit(
            lambda: self._is_kept(one.key, lost),
            done=lambda kept: self._answered(one, lost, kept=kept) if self._counts(one, attempt, origin) else None,
            failed=_raise,
        )

    def _is_kept(self, key: str, lost: OffsetRange) -> bool:
        try:
            self._keep((key, lost))
        except CoordinationUnavailableError:
            return False
        return True

    def _answered(self, one: MirrorPartition, lost: OffsetRange, *, kept: bool) -> None:
        if kept:
            self._told(one, lost.end, GapReason.LOST)
        else:
            one.source_retry_at = self._services.clock.monotonic() + RETRY_S


def _raise(error: Exception) -> None:
    raise error
