"""A verify run as the mirror's page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from console.presenters import numbers
from console.presenters.looks import Look
from console.presenters.numbers import Moment, moment
from console.presenters.reasons import VERIFY_LOOKS

if TYPE_CHECKING:
    from console.models import VerifyRun

SHOWN_DIFFERENCES = 20
_LIVE = frozenset({"QUEUED", "RUNNING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One record that is not equal."""

    partition: str
    offset: str
    kind: str
    source: str
    mirror: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The latest comparison."""

    look: Look
    live: bool
    records: str
    differences: str
    size: str
    duration: str
    requested: Moment | None
    by: str
    error: str
    first: Sequence[Difference]


def run_view(run: VerifyRun | None, *, now: datetime) -> RunView | None:
    """Present a run; a run that is under way shows how long it has been."""
    if run is None:
        return None
    return RunView(
        look=VERIFY_LOOKS[run.status],
        live=run.status in _LIVE,
        records=numbers.count(run.records_compared),
        differences=numbers.count(run.differences),
        size=numbers.size(run.bytes_compared),
        duration=_duration(run, now),
        requested=moment(run.requested_at, now=now),
        by=run.requested_by,
        error=run.error_message,
        first=[_difference(one) for one in run.first_differences[:SHOWN_DIFFERENCES]],
    )


def _duration(run: VerifyRun, now: datetime) -> str:
    if run.duration_ms is not None:
        return numbers.duration(run.duration_ms)
    if run.status in _LIVE and run.started_at:
        return f"{numbers.duration((now - run.started_at).total_seconds() * 1000)} so far"
    return ""


def _difference(one: dict[str, Any]) -> Difference:
    return Difference(
        partition=str(one["partition"]),
        offset=numbers.count(one["offset"]),
        kind=str(one["kind"]),
        source=_value(one.get("source_value")),
        mirror=_value(one.get("mirror_value")),
    )


def _value(value: object) -> str:
    return numbers.UNKNOWN if value is None else str(value)
