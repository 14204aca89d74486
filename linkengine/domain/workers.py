"""The setup that the console gives a copy worker, and the heartbeats that the worker returns.

Both are JSON objects with named fields, as plans are (``plantexts``), because executors may run another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

HEARTBEAT_MS = 1_000  # interval of heartbeats
DEAD_MS = 4_000  # after this time without a heartbeat a worker counts as dead; its partitions are placed on other workers
NUMBER_DIGITS = 4


class SetupText(str):
    """A worker's setup as JSON; it holds a key and an address with a password, so it is never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<the setup of a copy worker>"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """The settings of a copy worker, which are part of its Spark job."""

    worker_id: str
    redis_url: str = field(repr=False)
    key: str = field(repr=False)  # encrypts its assignments and heartbeats (``coordination.pool``)
    lease_ttl_ms: int = 4_000
    poll_ms: int = 100  # interval at which it reads its assignments


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShare:
    """A worker's state of a link that it has an assignment for."""

    applied: int  # number of the assignment that is in effect
    partitions: int = 0  # that it has not released
    error: str = ""  # why it does not copy the link


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The heartbeat of a copy worker."""

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
    """Return the id of a worker: its number in the pool and a part that differs between workers of the same number."""
    return f"{number:0{NUMBER_DIGITS}d}-{unique}"


def number_of(worker_id: str) -> int:
    """Return a worker's number in the pool."""
    return int(worker_id.partition("-")[0])


def write_setup(setup: WorkerSetup) -> SetupText:
    """Return a setup as JSON."""
    return SetupText(json.dumps(asdict(setup)))


def read_setup(text: str) -> WorkerSetup:
    """Return the setup that ``write_setup`` wrote, in any version."""
    return WorkerSetup(**_known(WorkerSetup, json.loads(text)))


def write_heartbeat(beat: Heartbeat) -> str:
    """Return a heartbeat as JSON."""
    return json.dumps(asdict(beat))


def read_heartbeat(text: str, *, silent_ms: int) -> Heartbeat:
    """Return the heartbeat that ``write_heartbeat`` wrote; raise ValueError for any other text."""
    try:
        values = _known(Heartbeat, json.loads(text))
        links = {name: LinkShare(**_known(LinkShare, share)) for name, share in values.get("links", {}).items()}
        return Heartbeat(**{**values, "links": links, "silent_ms": silent_ms})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a copy worker's heartbeat: {error}") from error


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {known.name for known in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
