"""Takes the leases of all partitions of a mirror, so that no copier is at work while it is fenced or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
    lease = RedisLease(settings.REDIS_URL, ttl_ms=plans.TUNING.lease_ttl_ms)
    got, over = Taken(), Event()
    keeper = Thread(target=_keep, args=(lease, got, over), name=f"keep-leases-{mirror.pk}", daemon=True)
    keeper.start()
    try:
        _take(lease, mirror, got, deadline=time.monotonic() + wait_s)
        yield got
    finally:
        over.set()
        keeper.join()
        for grant in got.grants:
            _release(lease, grant)


@contextmanager
def taken_from_many(mirrors: Sequence[MirrorTopic], *, wait_s: float) -> Iterator[dict[int, Taken]]:
    """Do what ``taken`` does for many mirrors, waiting once for all; answer by primary key."""
    lease = RedisLease(settings.REDIS_URL, ttl_ms=plans.TUNING.lease_ttl_ms)
    got = {mirror.pk: Taken() for mirror in mirrors}
    deadline = time.monotonic() + wait_s
    try:
        for mirror in mirrors:
            _take(lease, mirror, got[mirror.pk], deadline=deadline)
        yield got
    finally:
        for one in got.values():
            for grant in one.grants:
                _release(lease, grant)


def _take(lease: RedisLease, mirror: MirrorTopic, got: Taken, *, deadline: float) -> None:
    missing = {one.key for one in plans.assignments_of(mirror)}
    try:
        while missing:
            for key in sorted(missing):
                grant = lease.acquire(key, f"stop-{mirror.pk}")
                if grant is not None:
                    got.grants.append(grant)
                    missing.discard(key)
            if missing and time.monotonic() >= deadline:
                break
            if missing:
                time.sleep(POLL_S)
        held = [grant.generation for grant in got.grants]
        others = [lease.raise_generation(key, 0) + 1 for key in missing]
        got.generation = max([1, *held, *others])
        got.complete = not missing
    except CoordinationUnavailableError as error:  # the fence on the brokers decides without any lease
        _log.warning("leases.unavailable", mirror=mirror.name, error=str(error))


def _keep(lease: RedisLease, got: Taken, over: Event) -> None:
    while not over.wait(plans.TUNING.lease_ttl_ms / 1000 / RENEWALS_PER_TTL):
        try:
            lease.renew(list(got.grants))
        except CoordinationUnavailableError as error:  # the next one may come in time
            _log.warning("leases.not_renewed", error=str(error))


def _release(lease: RedisLease, grant: Grant) -> None:
    """Give back what was handed over to us cleanly; the rest runs out by itself, so that the next owner does not trust it."""
    if not grant.clean:
        return
    try:
        lease.release(grant)
    except CoordinationUnavailableError as error:  # it runs out by itself
        _log.warning("leases.not_released", key=grant.key, error=str(error))
