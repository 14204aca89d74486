"""The migration gate: what has to be true before a mirror is promoted, as a list of checks. Pure: the caller looks.

A check that could not be made is no passed check. What a link does not do (no group sync, no ACL sync) is not applicable and
says so, so that nobody takes it for done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from linkengine.domain.errors import ErrorCode
from linkengine.domain.linktasks import LINK_TROUBLES, TaskName, TaskState


class GateCheckName(StrEnum):
    """What is looked at."""

    DATA_VERIFIED = "DATA_VERIFIED"
    NOTHING_LOST = "NOTHING_LOST"
    NO_LAG = "NO_LAG"
    CONFIGS_EQUAL = "CONFIGS_EQUAL"
    GROUPS_SYNCED = "GROUPS_SYNCED"
    ACLS_SYNCED = "ACLS_SYNCED"
    CANARY_READ = "CANARY_READ"


class GateCheckState(StrEnum):
    """What came of a check."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    NOT_APPLICABLE = "NOT_APPLICABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One line of the checklist."""

    name: GateCheckName
    state: GateCheckState
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRead:
    """The newest record of a mirror partition as an ordinary consumer reads it, beside the source's at that offset."""

    partition: int
    offset: int | None  # None: the partition holds no record
    problem: str = ""  # "": equal, or nothing to read
    gone: str = ""  # why the source has rightly removed it since, so that nothing was compared


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedData:
    """What the witness said. ``differences`` is None where that shows nothing, for the ``problem`` that is told."""

    records: int
    differences: int | None
    problem: str = ""
    not_copied: int | None = 0  # offsets that the source held when it began, and the mirror did not; None: nobody knows
    copied_since: int = 0  # offsets that the mirror holds now behind what was compared
    missing: str = ""  # what the source holds before the mirror's beginning, in words: the comparison begins behind it


_TASKS: Mapping[TaskName, GateCheckName] = {
    TaskName.CONSUMER_OFFSETS: GateCheckName.GROUPS_SYNCED,
    TaskName.ACLS: GateCheckName.ACLS_SYNCED,
}
_NAMED = 3  # problems of one kind in one line
_LAG = {ErrorCode.WAITING_FOR_LAG, ErrorCode.UNEXPECTED_TRUNCATION}
_LOOKED = _LAG | {ErrorCode.WAITING_FOR_CONFIGS}  # told beside the lag; whatever else is told came in its place


def is_green(checks: Sequence[GateCheck]) -> bool:
    """Tell whether the gate is open: something was checked, and nothing failed."""
    return bool(checks) and all(one.state is not GateCheckState.FAILED for one in checks)


def fail_all(why: str) -> list[GateCheck]:
    """Answer the checklist of a topic that cannot be looked at."""
    return [_failed(name, why) for name in GateCheckName]


def check_data(seen: VerifiedData) -> GateCheck:
    """Judge the comparison of every record."""
    if seen.differences is None:
        return _failed(GateCheckName.DATA_VERIFIED, seen.problem)
    if seen.differences:
        return _failed(GateCheckName.DATA_VERIFIED, f"{seen.differences:,} of {seen.records:,} records differ from the source.")
    problem = seen.missing or _not_compared(seen)
    if problem:
        return _failed(GateCheckName.DATA_VERIFIED, problem)
    if not seen.records:
        return _passed(GateCheckName.DATA_VERIFIED, "No record was compared: the source has none that the mirror could hold.")
    since = f" {seen.copied_since:,} offsets were copied since." if seen.copied_since else ""
    return _passed(GateCheckName.DATA_VERIFIED, f"{seen.records:,} records compared, none differs.{since}")


def _not_compared(seen: VerifiedData) -> str:
    """Answer why equal records are not all of them, "" where they are: up to where the source ended when it was asked."""
    if seen.not_copied is None:
        return (
            "Nobody knows whether the mirror had everything when the comparison began: the source did not tell where it "
            "ended. Run it again."
        )
    if seen.not_copied:
        return (
            f"{seen.not_copied:,} offsets of the source were not on the mirror yet when it was compared. Wait until the mirror "
            "has caught up, then run it again."
        )
    if not seen.records and seen.copied_since:
        return f"No record was compared, and {seen.copied_since:,} offsets have been copied since. Run it again."
    return ""


def check_losses(lost: int) -> GateCheck:
    """Judge the gap ledger: offsets that retention removed on the source before they were copied."""
    if lost:
        return _failed(GateCheckName.NOTHING_LOST, f"{lost:,} offsets were gone from the source before they were copied.")
    return _passed(GateCheckName.NOTHING_LOST, "Everything the source had since the mirror began was copied.")


def check_blockers(blockers: Iterable[tuple[ErrorCode, str]]) -> list[GateCheck]:
    """Sort what a promotion would wait for into lag and everything else; what kept us from looking is no sign of equal ends."""
    found = list(blockers)
    lags = [message for code, message in found if code in _LAG]
    others = [message for code, message in found if code not in _LAG]
    unseen = [f"The ends were not compared: {message}" for code, message in found if code not in _LOOKED]
    return [
        _judged(GateCheckName.NO_LAG, lags or unseen, "Both sides end at the same offsets."),
        _judged(GateCheckName.CONFIGS_EQUAL, others, "Partitions and configs are the source's."),
    ]


def check_task(name: TaskName, state: TaskState, problems: Sequence[str]) -> GateCheck:
    """Judge what a recurring task of the link carries over, by a look at both sides and not by its last run."""
    check = _TASKS[name]
    if state is TaskState.NOT_CONFIGURED:
        detail = f"The link does not run {name}: take care of it yourself, or switch it on."
        return GateCheck(name=check, state=GateCheckState.NOT_APPLICABLE, detail=detail)
    if state in LINK_TROUBLES:
        return _failed(check, f"{name} is {state}.")
    return _judged(check, list(problems[:_NAMED]), "Both sides are equal, as far as the link's filters reach.")


def check_canary(reads: Sequence[CanaryRead]) -> GateCheck:
    """Judge what an ordinary consumer read."""
    problems = [f"partition {one.partition}: {one.problem}" for one in reads if one.problem]
    if problems or not reads:
        return _failed(GateCheckName.CANARY_READ, "; ".join(problems[:3]) or "No partition could be read.")
    found = sum(1 for one in reads if one.offset is not None)
    gone = [f"partition {one.partition}: {one.gone}" for one in reads if one.gone]
    more = f" Not compared: {'; '.join(gone[:_NAMED])}{'; …' if len(gone) > _NAMED else ''}." if gone else ""
    equal = "equal" if not gone else f"{found - len(gone)} of them equal"
    return _passed(
        GateCheckName.CANARY_READ, f"A consumer read the newest record of {found} of {len(reads)} partitions, {equal}.{more}"
    )


def _judged(name: GateCheckName, problems: list[str], good: str) -> GateCheck:
    return _failed(name, " ".join(problems)) if problems else _passed(name, good)


def _passed(name: GateCheckName, detail: str) -> GateCheck:
    return GateCheck(name=name, state=GateCheckState.PASSED, detail=detail)


def _failed(name: GateCheckName, detail: str) -> GateCheck:
    return GateCheck(name=name, state=GateCheckState.FAILED, detail=detail)
