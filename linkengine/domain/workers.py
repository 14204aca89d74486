"""The setup that the console gives a copy worker, and the heartbeats that the worker returns.

Both are JSON objects with named fields, as plans are (``plantexts``), because executors may run another version.

Spark starts a copy worker in any executor with a free slot. Two of them in one executor while another has none would mean
that one executor copies everything, and that its loss interrupts every partition. ``crowded_worker`` finds a worker to be
replaced; Spark may start the replacement in the wrong executor as well, so a caller tries it a few times.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
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
class Executor:
    """The Spark executor that a copy worker runs in; without a name it is unknown, as in local mode, which has only one."""

    name: str = ""
    slots: int = 0  # its cores


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
    executor: str = ""  # as in ``Executor``
    executor_slots: int = 0
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


def crowded_worker(beats: Iterable[Heartbeat], *, slots: int | None) -> str:
    """Return the id of the worker to be replaced so that the live workers are spread over Spark's executors, or "".

    It is the newest worker of the executor with the most workers, if another executor with a free slot has at least two fewer.
    ``slots``: of all executors. If those with workers have fewer, there are others without any. None: unknown.
    """
    executors: dict[str, list[Heartbeat]] = defaultdict(list)
    for beat in beats:
        if beat.alive:
            executors[beat.executor].append(beat)
    if not executors or "" in executors:
        return ""
    workers = [len(group) for group in executors.values() if len(group) < group[0].executor_slots]
    if slots is not None and slots > sum(group[0].executor_slots for group in executors.values()):
        workers.append(0)
    most = max(executors.values(), key=lambda group: (len(group), group[0].executor))
    if not workers or len(most) < min(workers) + 2:
        return ""
    return max(most, key=lambda beat: (beat.started_at_ms, beat.worker_id)).worker_id


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
