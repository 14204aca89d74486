"""A fake extra connection to a source broker: the test decides when a request gets its response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from linkengine.copyjob.source.extra_connection import ExtraConnection, Owner, Received
from linkengine.kafka.requests import FetchedPartition, FetchLimits, FetchPosition, FetchResponse

TOPIC = bytes(range(16))
T = TypeVar("T")


class FakeConnection(ExtraConnection[T]):
    """Collects requests; each is kept with its first position. It has no socket and is open."""

    made: list[Any] = []

    open = True
    filling = False

    def __init__(self, *_: object, owner: Owner[T]) -> None:
        self.owner = owner
        self.requested: list[tuple[FetchPosition, T]] = []
        FakeConnection.made.append(self)

    @property
    def outstanding(self) -> int:
        return len(self.requested)

    def request(
        self, positions: Mapping[bytes, Sequence[FetchPosition]], *, by_id: bool, limits: FetchLimits, subject: T, now: float
    ) -> None:
        assert by_id
        self.requested.append((positions[TOPIC][0], subject))

    def response(self, fetched: FetchedPartition, now: float) -> bool:
        """Respond to the first request; return False, and keep it, if there is no buffer for the response."""
        _, subject = self.requested[0]
        buffer = self.owner.allocate(len(fetched.records), subject)
        if buffer is None:
            return False
        del self.requested[0]
        view = buffer.view(len(fetched.records))
        view[:] = fetched.records
        received = Received(FetchResponse(0, 0, 0, [fetched._replace(records=view)]), buffer, len(view), 5)
        self.owner.received(self, subject, received, now)
        buffer.release()
        return True

    def check(self, now: float) -> None:
        """Do nothing: a fake connection is never silent."""

    def close(self) -> None:
        self.requested.clear()
