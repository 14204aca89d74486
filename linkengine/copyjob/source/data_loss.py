"""Persists a loss (offsets that the source deleted before they were copied) before markers fill its offsets.

Afterwards the log alone does not distinguish it from other gaps, and a copy worker that crashes could no longer report it.
"""

from __future__ import annotations

from collections.abc import Callable

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.partition_state import MirrorPartition
from linkengine.copyjob.values import SourceOrigin
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import GapReason

RETRY_S = 1.0  # while Redis is not available


class LossRecorder:
    """Persists losses in the background.

    If the attempt or the source's leader has changed by then, the result is dropped and the source is examined again.
    """

    def __init__(
        self,
        services: Services,
        *,
        keep: Callable[[tuple[str, OffsetRange]], None],
        persisted: Callable[[MirrorPartition, int, GapReason], None],
        counts: Callable[[MirrorPartition, int, SourceOrigin | None], bool],
    ) -> None:
        """Store the callbacks: ``keep`` persists a loss and may raise CoordinationUnavailableError.

        ``persisted`` is called with the end of a persisted loss. ``counts`` ends the wait and returns whether the leader of
        that attempt is still the leader to read from: another may have more.
        """
        self._services, self._keep, self._on_kept, self._counts = services, keep, persisted, counts

    def record(self, partition: MirrorPartition, lost: OffsetRange) -> None:
        """Persist the loss of offsets that are gone from the source; nothing is fetched until that is done."""
        attempt, origin, partition.examining = partition.attempt, partition.origin, True
        self._services.background.submit(
            lambda: self._persist(partition.key, lost),
            done=lambda kept: (
                self._on_persisted(partition, lost, kept=kept) if self._counts(partition, attempt, origin) else None
            ),
            failed=_raise,
        )

    def _persist(self, key: str, lost: OffsetRange) -> bool:
        try:
            self._keep((key, lost))
        except CoordinationUnavailableError:
            return False
        return True

    def _on_persisted(self, partition: MirrorPartition, lost: OffsetRange, *, kept: bool) -> None:
        if kept:
            self._on_kept(partition, lost.end, GapReason.LOST)
        else:
            partition.source_retry_at = self._services.clock.monotonic() + RETRY_S


def _raise(error: Exception) -> None:
    raise error
