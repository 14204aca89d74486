"""What goes wrong for one mirror stays apart from the others, and one step of a link's round from the next ones.

Nobody foresaw what is caught here, so each is logged in full, and the round tells of all in the end. What concerns everything,
as a database or a Redis that went away, is not caught for one mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import redis
import structlog
from django.db import InterfaceError, OperationalError, connection

from console.models import MirrorPartition, MirrorTopic
from linkengine.domain.leases import CoordinationUnavailableError

IN_FULL = 3  # tracebacks of mirrors in one round; a mistake in the code may fail for a thousand of them, each second
_OF_ALL = (redis.RedisError, CoordinationUnavailableError)
_log = structlog.get_logger(__name__)
Chosen = TypeVar("Chosen", bound=MirrorPartition)


class Failures:
    """What failed in one round of a link: the mirrors by primary key, and the steps by name, with what they failed by.

    ``strict``: for who looks after one thing only; everything is raised.
    """

    def __init__(self, *, link: str = "", strict: bool = False) -> None:
        self.mirrors: dict[int, BaseException] = {}
        self.steps: dict[str, BaseException] = {}
        self._gone: set[int] = set()
        self._link, self._strict = link, strict

    def are_of(self, mirror_id: int) -> bool:
        """Tell whether something failed for the mirror, or it was deleted meanwhile: leave it to the next round."""
        return mirror_id in self.mirrors or mirror_id in self._gone

    def sound(self, mirrors: Sequence[MirrorTopic]) -> list[MirrorTopic]:
        """Answer the mirrors for which nothing has failed."""
        return [one for one in mirrors if not self.are_of(one.pk)]

    @contextmanager
    def of_mirror(self, mirror_id: int) -> Iterator[None]:
        """Do something for one mirror inside; what it fails by goes no further, unless it concerns everything."""
        try:
            yield
        except Exception as error:
            if self._strict or _is_of_all(error):
                raise
            self._note(mirror_id, error)

    @contextmanager
    def of_step(self, name: str) -> Iterator[None]:
        """Take a step of the round inside; one that fails keeps the next ones from nothing."""
        try:
            yield
        except CoordinationUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - logged in full, counted and told by /readyz
            _log.exception("reconcile.link_step_failed", link=self._link, step=name)
            self.steps[name] = error

    def each_if_not_all(self, rows: Sequence[Chosen], write: Callable[[Sequence[Chosen]], None]) -> None:
        """Write all rows at once; where that fails the halves, and so on, until it is known whose rows are refused."""
        mirrors = sorted({row.mirror_id for row in rows})
        if len(mirrors) > 1:
            try:
                return write(rows)
            except Exception as error:
                if self._strict or _is_of_all(error):
                    raise
            middle = mirrors[len(mirrors) // 2]
            self.each_if_not_all([row for row in rows if row.mirror_id < middle], write)
            self.each_if_not_all([row for row in rows if row.mirror_id >= middle], write)
        elif mirrors:
            with self.of_mirror(mirrors[0]):
                write(rows)
        return None

    def _note(self, mirror_id: int, error: BaseException) -> None:
        if not MirrorTopic.objects.filter(pk=mirror_id).exists():  # deleted while it was looked at
            self._gone.add(mirror_id)
            return
        self.mirrors.setdefault(mirror_id, error)
        traced = error if len(self.mirrors) <= IN_FULL else None
        _log.error("reconcile.mirror_failed", link=self._link, mirror_id=mirror_id, error=repr(error), exc_info=traced)


def _is_of_all(error: BaseException) -> bool:
    if isinstance(error, OperationalError | InterfaceError):  # also a deadlock, which is one mirror's
        return not connection.is_usable()
    return isinstance(error, _OF_ALL)
