"""Errors of mirrors: their rows, their isolation within a pass, refused configs and reverted edits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

import redis
import structlog
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Q

from console import audit
from console.actors import ENGINE
from console.models import ClusterLink, ConfigRevert, MirrorPartition, MirrorTopic, StateTransitionError, StopReport
from console.models.links import show_change
from console.models.mirrors import CONFIGS_REFUSED, KEPT
from linkengine.domain.configs import LocalEdit
from linkengine.domain.mirrorjobs import FILLERS, RefusedStep
from linkengine.domain.states import MirrorState, StopReason
from linkengine.domain.workers import CoordinationUnavailableError

# --- current errors ---------------------------------------------------------------------------------------------------
#
# Rows of StateTransitionError. When the cause is gone, ``end`` of the queryset replaces them with rows of EndedError.


def note(*, mirror: MirrorTopic, code: str, message: str, now: datetime) -> bool:
    """Add or renew an error. Returns whether a page would show something new."""
    known = StateTransitionError.objects.filter(mirror=mirror, code=code).first()
    if known is None:
        StateTransitionError.objects.create(mirror=mirror, code=code, message=message, since=now, last_seen_at=now)
        return True
    changed = known.message != message
    StateTransitionError.objects.filter(pk=known.pk).update(message=message, last_seen_at=now, count=F("count") + 1)
    return changed


def replace(*, mirror: MirrorTopic, errors: Mapping[str, str], now: datetime) -> bool:
    """Set exactly these errors (code to message). Returns whether a page would show something new."""
    changed = clear(mirrors=[mirror], keep=errors, now=now)
    for code, message in errors.items():
        changed |= note(mirror=mirror, code=code, message=message, now=now)
    return changed


def clear(*, mirrors: Sequence[MirrorTopic], keep: Iterable[str] = (), now: datetime) -> bool:
    """Remove all errors except those that do not end with the state of the copy: lost records, differences (``KEPT``)."""
    return StateTransitionError.objects.filter(mirror__in=mirrors).exclude(code__in=[*keep, *KEPT]).end(now=now)


def end(*, mirror: MirrorTopic, codes: Iterable[str], now: datetime) -> bool:
    """Remove these errors, since the last check did not find them. Returns whether there were any."""
    return StateTransitionError.objects.filter(mirror=mirror, code__in=list(codes)).end(now=now)


def since(*, mirror: MirrorTopic, code: str) -> datetime | None:
    """Return since when an error has been reported without interruption."""
    return StateTransitionError.objects.filter(mirror=mirror, code=code).values_list("since", flat=True).first()


# --- isolation of failures --------------------------------------------------------------------------------------------
#
# Only unexpected exceptions are isolated, so each is logged with its traceback, and the pass reports all of them at its end.
# Errors that concern all mirrors, such as an unavailable database or Redis, are not caught for a single mirror.


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
        """Run the block for a mirror. An exception is stored for this mirror, unless it concerns all mirrors."""
        try:
            yield
        except Exception as error:
            if self._strict or _is_global(error):
                raise
            self._note(mirror_id, error)

    @contextmanager
    def of_step(self, name: str) -> Iterator[None]:
        """Run the block as a step of the pass. An exception is stored, and the next steps run."""
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


# --- what a destination refused after a stop --------------------------------------------------------------------------
#
# The report keeps each refused step; a step that a retry resolves gets the time. The mirror shows CONFIGS_REFUSED as long as a
# step is unresolved.


_NAMED = 3  # in the message; the report lists all


def note_refusals(refused: Mapping[MirrorTopic, Sequence[RefusedStep]], *, now: datetime) -> None:
    """Show refused steps on mirrors. No steps end what was shown before. A single statement if nothing is refused."""
    sound = [mirror for mirror, steps in refused.items() if not steps]
    StateTransitionError.objects.filter(mirror__in=sound, code=CONFIGS_REFUSED).end(now=now)
    for mirror, steps in refused.items():
        if steps:
            note(mirror=mirror, code=CONFIGS_REFUSED, message=_message(steps), now=now)


def add_refusals(*, mirror: MirrorTopic, refused: Sequence[RefusedStep], now: datetime) -> None:
    """Add steps that were refused later to the newest report, and show them."""
    with transaction.atomic():
        report = StopReport.objects.select_for_update().filter(mirror=mirror).first()
        if report is not None:
            known = {step.name for step in report.unresolved}
            report.refused = [*report.refused, *(_row(step) for step in refused if step.name not in known)]
            report.save(update_fields=["refused"])
        note_refusals({mirror: refused}, now=now)
        show_change(mirror.link_id)


def settle_refusals(*, mirror: MirrorTopic, refused: Sequence[RefusedStep], now: datetime) -> None:
    """Store the outcome of a retry: steps refused again get the new reason, all other configs are resolved."""
    again = {step.name: step for step in refused}
    with transaction.atomic():
        report = StopReport.objects.select_for_update().filter(mirror=mirror).first()
        left = list(refused)
        if report is not None:
            known = {step.name for step in report.unresolved}
            rows = [_settled(row, again, now=now) for row in report.refused]
            report.refused = [*rows, *(_row(step) for step in refused if step.name not in known)]
            report.save(update_fields=["refused"])
            left += [step for step in report.unresolved if step.name == FILLERS]
        note_refusals({mirror: left}, now=now)
        show_change(mirror.link_id)


def _row(step: RefusedStep) -> dict[str, Any]:
    return {**asdict(step), "resolved_at": None}


def _settled(row: dict[str, Any], again: dict[str, RefusedStep], *, now: datetime) -> dict[str, Any]:
    if row["resolved_at"] is not None or row["name"] == FILLERS:
        return row
    step = again.get(row["name"])
    return _row(step) if step is not None else {**row, "resolved_at": now.isoformat()}


def _message(refused: Sequence[RefusedStep]) -> str:
    configs = [step for step in refused if step.name != FILLERS]
    sentences = []
    if configs:
        named = ", ".join(f"{step.name}={step.value or '(cluster default)'}" for step in configs[:_NAMED])
        more = f" and {len(configs) - _NAMED} more" if len(configs) > _NAMED else ""
        sentences.append(
            f"The topic is writable, but the destination refused {named}{more}, so the mirror's values stay in effect "
            f"(unlimited retention, for example). Reason: {configs[0].message} Change the policy or the permission and retry, "
            "or set the configs with another tool."
        )
    sentences += [
        f"Empty records below the mirror's start could not be removed: {step.message} Remove them with kafka-delete-records."
        for step in refused
        if step.name == FILLERS
    ]
    return " ".join(sentences)


# --- topic configs ----------------------------------------------------------------------------------------------------
#
# Which topics still follow their source, and notes of local edits that were reverted.


REVERTS_KEPT = 20  # per mirror
_FAILING_OVER = Q(state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.FAILOVER)
_FENCED = Q(state=MirrorState.PENDING_STOPPED, fencing_at__isnull=False)
_NO_MIRRORS = Q(state__in=(MirrorState.STOPPED, MirrorState.FAILED)) | _FAILING_OVER | _FENCED


def still_mirrors(link: ClusterLink) -> Callable[[str], bool]:
    """Return a function that checks whether a topic name is a mirror of this link which still follows its source."""
    mirrors = link.mirrors.filter(deletion_requested_at=None).exclude(_NO_MIRRORS)
    return lambda name: mirrors.filter(name=name).exists()


def note_reverts(*, mirror: MirrorTopic, edits: Sequence[LocalEdit], now: datetime) -> None:
    """Store reverted edits and audit them, so that their author learns why. Only the newest notes are kept."""
    with transaction.atomic():
        ConfigRevert.objects.bulk_create(
            ConfigRevert(mirror=mirror, name=edit.name, found=edit.found, restored=edit.restored, at=now) for edit in edits
        )
        detail = {edit.name: {"found": edit.found, "restored": edit.restored} for edit in edits}
        audit.record(
            by=ENGINE, action="RevertTopicConfigs", resource=audit.path_of(mirror), now=now, detail={"configs": detail}
        )
        show_change(mirror.link_id)
        old = list(ConfigRevert.objects.filter(mirror=mirror).values_list("pk", flat=True)[REVERTS_KEPT:])
        ConfigRevert.objects.filter(pk__in=old).delete()
