"""Isolates failures within the reconcile pass of a link: of single mirrors, and of the steps of the pass.

Only unexpected exceptions get here, so each is logged with its traceback, and the pass reports all of them at its end. Errors
that concern all mirrors, such as an unavailable database or Redis, are not caught for a single mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import redis
import structlog
from django.db import InterfaceError, OperationalError, connection

from console.models import MirrorPartition, MirrorTopic
from linkengine.domain.workers import CoordinationUnavailableError

IN_FULL = 3  # tracebacks of mirrors per pass; a bug may fail for a thousand mirrors, each second
_GLOBAL = (redis.RedisError, CoordinationUnavailableError)
_log = structlog.get_logger(__name__)
Chosen = TypeVar("Chosen", bound=MirrorPartition)


class Failures:
    """The failures in a reconcile pass of a link: mirrors by primary key and steps by name, with their exceptions.

    ``strict``: for callers with a single subject; everything is raised.
    """

    def __init__(self, *, link: str = "", strict: bool = False) -> None:
        self.mirrors: dict[int, BaseException] = {}
        self.steps: dict[str, BaseException] = {}
        self._gone: set[int] = set()
        self._link, self._strict = link, strict

    def has_failed(self, mirror_id: int) -> bool:
        """Return whether the mirror has failed in this pass or was deleted since. The next pass handles it."""
        return mirror_id in self.mirrors or mirror_id in self._gone

    def not_failed(self, mirrors: Sequence[MirrorTopic]) -> list[MirrorTopic]:
        """Return the mirrors that have not failed."""
        return [mirror for mirror in mirrors if not self.has_failed(mirror.pk)]

    @contextmanager
    def of_mirror(self, mirror_id: int) -> Iterator[None]:
        """Do work for a mirror inside the block. An exception is stored for this mirror, unless it concerns all mirrors."""
        try:
            yield
        except Exception as error:
            if self._strict or _is_global(error):
                raise
            self._note(mirror_id, error)

    @contextmanager
    def of_step(self, name: str) -> Iterator[None]:
        """Run a step of the pass inside the block. An exception is stored, and the next steps run."""
        try:
            yield
        except CoordinationUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - logged with traceback, counted and reported by /readyz
            _log.exception("reconcile.link_step_failed", link=self._link, step=name)
            self.steps[name] = error

    def write_isolated(self, rows: Sequence[Chosen], write: Callable[[Sequence[Chosen]], None]) -> None:
        """Write all rows at once. If that fails, write each half the same way, until the refused rows are isolated."""
        mirrors = sorted({row.mirror_id for row in rows})
        if len(mirrors) > 1:
            try:
                return write(rows)
            except Exception as error:
                if self._strict or _is_global(error):
                    raise
            middle = mirrors[len(mirrors) // 2]
            self.write_isolated([row for row in rows if row.mirror_id < middle], write)
            self.write_isolated([row for row in rows if row.mirror_id >= middle], write)
        elif mirrors:
            with self.of_mirror(mirrors[0]):
                write(rows)
        return None

    def _note(self, mirror_id: int, error: BaseException) -> None:
        if not MirrorTopic.objects.filter(pk=mirror_id).exists():  # deleted during the pass
            self._gone.add(mirror_id)
            return
        self.mirrors.setdefault(mirror_id, error)
        traced = error if len(self.mirrors) <= IN_FULL else None
        _log.error("reconcile.mirror_failed", link=self._link, mirror_id=mirror_id, error=repr(error), exc_info=traced)


def _is_global(error: BaseException) -> bool:
    if isinstance(error, OperationalError | InterfaceError):  # includes deadlocks, which concern a single mirror
        return not connection.is_usable()
    return isinstance(error, _GLOBAL)
