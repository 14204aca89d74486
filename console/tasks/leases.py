"""Takes the leases of all partitions of mirrors, so that no copier is at work while they are fenced or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import structlog
from django.conf import settings

from console.models import MirrorTopic
from console.reconciling import plans
from linkengine.coordination.lease import RedisLease
from linkengine.domain.leases import CoordinationUnavailableError, Grant

POLL_S = 0.05
RENEWALS_PER_TTL = 4
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Taken:
    """What was got: ``complete`` if every partition was released to us in time; ``generation`` is above every owner's."""

    complete: bool = False
    generation: int = 1
    grants: list[Grant] = field(default_factory=list)


@contextmanager
def taken(mirror: MirrorTopic, *, wait_s: float) -> Iterator[Taken]:
    """Order the copier to let go before. Waits until it has, at most ``wait_s``; gives everything back in the end.

    What was got is kept for as long as the block takes: fencing many partitions may take longer than a lease lasts.
    """
    with taken_from_many([mirror], wait_s=wait_s) as got:
        yield got[mirror.pk]


@contextmanager
def taken_from_many(mirrors: Sequence[MirrorTopic], *, wait_s: float) -> Iterator[dict[int, Taken]]:
    """Do what ``taken`` does for many mirrors, waiting once for all, by few round trips; answer by primary key."""
    lease = RedisLease(settings.REDIS_URL, ttl_ms=plans.TUNING.lease_ttl_ms)
    got, over = {mirror.pk: Taken() for mirror in mirrors}, Event()
    keeper = Thread(target=_keep, args=(lease, tuple(got.values()), over), name=f"keep-leases-{min(got)}", daemon=True)
    keeper.start()
    try:
        _take(
            lease, {one.key: got[mirror.pk] for mirror in mirrors for one in plans.assignments_of(mirror)}, got, wait_s=wait_s
        )
        yield got
    finally:
        over.set()
        keeper.join()
        _release(lease, [grant for one in got.values() for grant in one.grants])


def _take(lease: RedisLease, wanted: Mapping[str, Taken], got: Mapping[int, Taken], *, wait_s: float) -> None:
    deadline, missing = time.monotonic() + wait_s, dict(wanted)
    try:
        while missing:
            for grant in lease.acquire_all(sorted(missing), f"stop-{min(got)}"):
                _add(missing.pop(grant.key), grant)
            if not missing or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        raised = lease.raise_generations(sorted(missing), 0) if missing else {}
        for key, known in raised.items():
            missing[key].generation = max(missing[key].generation, known + 1)
    except CoordinationUnavailableError as error:  # the fence on the brokers decides without any lease
        _log.warning("leases.unavailable", mirrors=len(got), missing=len(missing), error=str(error))
        return
    lacking = {id(one) for one in missing.values()}
    for one in got.values():
        one.complete = id(one) not in lacking


def _add(one: Taken, grant: Grant) -> None:
    one.grants.append(grant)
    one.generation = max(one.generation, grant.generation)


def _keep(lease: RedisLease, got: Sequence[Taken], over: Event) -> None:
    while not over.wait(plans.TUNING.lease_ttl_ms / 1000 / RENEWALS_PER_TTL):
        try:
            lease.renew([grant for one in got for grant in list(one.grants)])
        except CoordinationUnavailableError as error:  # the next one may come in time
            _log.warning("leases.not_renewed", error=str(error))


def _release(lease: RedisLease, grants: Sequence[Grant]) -> None:
    """Give back what was handed over to us cleanly; the rest runs out by itself, so that the next owner does not trust it."""
    try:
        lease.release_all([grant for grant in grants if grant.clean])
    except CoordinationUnavailableError as error:  # it runs out by itself
        _log.warning("leases.not_released", leases=len(grants), error=str(error))
