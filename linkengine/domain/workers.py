"""The values that a copy worker and those who look after it exchange: how it begins, and what it tells of itself.

They travel as JSON by name, as plans do (``plantexts``): executors may run another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

HEARTBEAT_MS = 1_000  # between two signs of life
DEAD_MS = 4_000  # a worker that is silent for longer is gone: its partitions go to others, whose turn the leases decide
NUMBER_DIGITS = 4


class SetupText(str):
    """A worker's setup as JSON; it holds a key and an address with a password, so it is never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<the setup of a copy worker>"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """What a copy worker is born with. It travels inside its Spark job."""

    worker_id: str
    redis_url: str = field(repr=False)
    key: str = field(repr=False)  # seals all that is said between it and us (``coordination.pool``)
    lease_ttl_ms: int = 4_000
    poll_ms: int = 100  # how often it looks for news


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShare:
    """What a worker says of one link that it was told of."""

    applied: int  # number of the assignment it follows
    partitions: int = 0  # that it has not let go of
    error: str = ""  # why it does nothing for the link


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A worker's sign of life."""

    worker_id: str
    host: str = ""
    pid: int = 0
    started_at_ms: int = 0  # by its own clock
    partitions: int = 0
    bytes_per_s: float = 0.0
    links: Mapping[str, LinkShare] = field(default_factory=dict)
    ended: bool = False  # the last heartbeat of a worker that ends in order: it has released everything
    silent_ms: int = 0  # since Redis received it; set by the reader

    @property
    def alive(self) -> bool:
        """Return True if its last heartbeat is recent and not that of its end."""
        return not self.ended and self.silent_ms <= DEAD_MS


def worker_id_for(number: int, unique: str) -> str:
    """Name a worker: its number in the pool, and who of all that had this number."""
    return f"{number:0{NUMBER_DIGITS}d}-{unique}"


def number_of(worker_id: str) -> int:
    """Answer a worker's number in the pool."""
    return int(worker_id.partition("-")[0])


def write_setup(setup: WorkerSetup) -> SetupText:
    """Write a setup as JSON."""
    return SetupText(json.dumps(asdict(setup)))


def read_setup(text: str) -> WorkerSetup:
    """Read what ``write_setup`` wrote, of any version."""
    return WorkerSetup(**_known(WorkerSetup, json.loads(text)))


def write_heartbeat(beat: Heartbeat) -> str:
    """Write a sign of life as JSON."""
    return json.dumps(asdict(beat))


def read_heartbeat(text: str, *, silent_ms: int) -> Heartbeat:
    """Read what ``write_heartbeat`` wrote; raise ValueError for anything else."""
    try:
        values = _known(Heartbeat, json.loads(text))
        links = {name: LinkShare(**_known(LinkShare, one)) for name, one in values.get("links", {}).items()}
        return Heartbeat(**{**values, "links": links, "silent_ms": silent_ms})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a copy worker's heartbeat: {error}") from error


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
