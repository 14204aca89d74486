"""A fake extra connection to a source broker: the test decides when a request gets its response."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from linkengine.copyjob.source.extra_connection import Owner, Received
from linkengine.kafka.requests import FetchedPartition, FetchLimits, FetchPosition, FetchResponse

TOPIC = bytes(range(16))
T = TypeVar("T")


class FakeConnection(Generic[T]):
    """Collects requests; each is kept with its first position."""

    made: list[Any] = []

    filling = False

    def __init__(self, *_: Any, owner: Owner[T]) -> None:
        self.owner, self.open = owner, True
        self.requested: list[tuple[FetchPosition, T]] = []
        FakeConnection.made.append(self)

    @property
    def outstanding(self) -> int:
        return len(self.requested)

    def request(
        self, positions: dict[bytes, list[FetchPosition]], *, by_id: bool, limits: FetchLimits, subject: T, now: float
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
        self.owner.received(self, subject, received, now)  # type: ignore[arg-type]
        buffer.release()
        return True

    def check(self, now: float) -> None:
        """Do nothing: a fake connection is never silent."""

    def close(self) -> None:
        self.requested.clear()
