"""Lets a failover or a deletion preempt a set-up, a restore or a takeover of the same topic.

A stop waits until the preempted task has ended (``preempting``), by its lock. A lock does not guarantee that: Redis may lose
it, and a process may be suspended for longer than the lock lasts. So the task checks its row before each step
(``check_unchanged``), and reverts a step that it carried out too late (``reconcile_topic``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog
from django.utils import timezone

from console.mirrors import lineage
from console.models import MirrorTopic
from console.queue import dispatch
from console.reconciling import plans, transition_errors
from console.redis import locks
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.states import BECOMING, CLOSED_FIRST, MirrorState

# a crashed worker keeps its lock for LOCK_TTL_S; a live worker gives way within about a second
PREEMPTION_TIMEOUT_S = locks.LOCK_TTL_S + 3.0
POLL_S = 0.1
CHECK_EVERY_S = 0.5  # while records are exported
REOPEN_ATTEMPTS = 20
REOPEN_PAUSE_S = 1.0
_log = structlog.get_logger(__name__)


class PreemptedError(Exception):
    """The mirror is to be stopped or deleted, or has been, so the task must not change its topic any further."""


def lock_name(mirror_id: int) -> str:
    """Return the name of the lock for making a topic a mirror or deleting it."""
    return f"mirror:{mirror_id}"


def is_unchanged(mirror: MirrorTopic) -> bool:
    """Return whether the row still has the state that was read, and is not to be deleted."""
    return MirrorTopic.objects.filter(pk=mirror.pk, state=mirror.state, deletion_requested_at=None).exists()


def check_unchanged(mirror: MirrorTopic) -> None:
    """Raise PreemptedError if the row has changed its state since it was read, or is to be deleted."""
    if not is_unchanged(mirror):
        raise PreemptedError


class Watch:
    """``check_unchanged`` for work that repeats many times a second: queries at most every ``CHECK_EVERY_S``."""

    def __init__(self, mirror: MirrorTopic) -> None:
        self._mirror = mirror
        self._next_at = 0.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next_at:
            check_unchanged(self._mirror)
            self._next_at = time.monotonic() + CHECK_EVERY_S


@contextmanager
def unless_preempted(mirror: MirrorTopic, *, on_error: Callable[[LinkEngineError], None]) -> Iterator[None]:
    """Run a task's work on a mirror. Calls ``on_error`` for an error, or ``reconcile_topic`` if the row has changed since."""
    try:
        yield
    except PreemptedError:
        reconcile_topic(mirror)
    except LinkEngineError as error:
        if is_unchanged(mirror):
            on_error(error)
        else:
            reconcile_topic(mirror)


@contextmanager
def preempting(mirror: MirrorTopic) -> Iterator[MirrorTopic | None]:
    """Wait until no task is making a stopping mirror's topic a mirror, and keep others from starting.

    Yields the reloaded row, or None if that takes too long; the reconciler tries again.
    """
    if mirror.prior_state not in BECOMING:
        yield mirror
        return
    with wait_for_lock(lock_name(mirror.pk), wait_s=PREEMPTION_TIMEOUT_S) as acquired:
        yield plans.load(mirror.pk) if acquired else None


@contextmanager
def wait_for_lock(name: str, *, wait_s: float) -> Iterator[bool]:
    """Wait for a lock that another process may hold briefly; yields whether it was acquired."""
    deadline = time.monotonic() + wait_s
    while True:
        with locks.lock(name) as acquired:
            if acquired or time.monotonic() >= deadline:
                yield acquired
                return
        time.sleep(POLL_S)


def reconcile_topic(mirror: MirrorTopic) -> None:
    """Bring the topic of a preempted task into line with its current row; ``mirror`` is the row as the task had read it."""
    fresh = plans.load(mirror.pk)
    _log.info("mirror.preempted", mirror=mirror.name, was=mirror.state, state=fresh.state if fresh else "")
    if fresh is not None and fresh.state == MirrorState.PENDING_STOPPED:
        dispatch.send("advance_stop", mirror_id=mirror.pk)
    elif fresh is not None and fresh.state != MirrorState.STOPPED:
        return
    else:
        _reopen_topic(mirror, fresh)


def _reopen_topic(mirror: MirrorTopic, stopped: MirrorTopic | None) -> None:
    """Open the topic of a mirror that is stopped or gone. No other task does this, so retry, and store an error if it fails."""
    was_closed = mirror.state in CLOSED_FIRST
    for left in reversed(range(REOPEN_ATTEMPTS)):
        try:
            if stopped is not None:
                _reopen_mirror(stopped, was_closed=was_closed)
            elif (plans.is_guarded(mirror.link) or was_closed) and not plans.is_contested(mirror):
                jobs.open_topic(mirror.link.destination.address, mirror.name)
        except LinkEngineError as error:
            if not left:
                _report(mirror, stopped, error)
                return
            time.sleep(REOPEN_PAUSE_S)
        else:
            return


def _reopen_mirror(stopped: MirrorTopic, *, was_closed: bool) -> None:
    topic_id, refused = jobs.reopen_mirror(replace(plans.stop_of(stopped, generation=0), was_closed=was_closed))
    if refused:
        transition_errors.add_refusals(mirror=stopped, refused=refused, now=timezone.now())
    MirrorTopic.objects.filter(pk=stopped.pk, mirror_topic_id="").update(mirror_topic_id=topic_id)
    lineage.close_lineage(mirror=stopped, now=timezone.now())
    dispatch.send("reconcile_link", link_id=stopped.link_id)


def _report(mirror: MirrorTopic, stopped: MirrorTopic | None, error: LinkEngineError) -> None:
    _log.error("mirror.not_reopened", mirror=mirror.name, code=error.code)
    if stopped is not None:
        message = (
            f"A preempted task may have closed topic '{mirror.name}' after its mirror was stopped, and opening it again "
            f"failed: {error.message} If producers are refused, delete the ACL DENY WRITE for User:* on the topic."
        )
        transition_errors.note(mirror=stopped, code=error.code, message=message, now=timezone.now())
