"""The migration gate: a checklist that must pass before a mirror is promoted. Pure functions of values that were read.

A check that could not be made has not passed. A task that the link does not run (consumer offset sync, ACL sync) is shown as
not applicable, so that it is not mistaken for done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from linkengine.domain.errors import ErrorCode
from linkengine.domain.linktasks import LINK_TROUBLES, TaskName, TaskState
from linkengine.domain.messages import TranslatableText, gettext_lazy, join_messages


class GateCheckName(StrEnum):
    """Name of a check."""

    DATA_VERIFIED = "DATA_VERIFIED"
    NOTHING_LOST = "NOTHING_LOST"
    NO_LAG = "NO_LAG"
    CONFIGS_EQUAL = "CONFIGS_EQUAL"
    GROUPS_SYNCED = "GROUPS_SYNCED"
    ACLS_SYNCED = "ACLS_SYNCED"
    CANARY_READ = "CANARY_READ"


class GateCheckState(StrEnum):
    """Result of a check."""

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
    """The newest record of a mirror partition as an ordinary consumer reads it, compared with the source's at that offset."""

    partition: int
    offset: int | None  # None: the partition holds no record
    problem: str = ""  # "": equal, or nothing to read
    gone: str = ""  # why the source no longer has the record, legitimately, so that nothing was compared


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedData:
    """Result of a verification run. ``differences`` is None if the run has no valid result; ``problem`` then says why."""

    records: int
    differences: int | None
    problem: str = ""
    not_copied: int | None = 0  # offsets that the source held and the mirror did not when the run began; None: unknown
    copied_since: int = 0  # offsets that the mirror now holds behind the compared offsets
    missing: str = ""  # text: offsets of the source before the mirror's start; the comparison begins behind it


_TASKS: Mapping[TaskName, GateCheckName] = {
    TaskName.CONSUMER_OFFSETS: GateCheckName.GROUPS_SYNCED,
    TaskName.ACLS: GateCheckName.ACLS_SYNCED,
}
_NAMED = 3  # problems named per message
_LAG = {ErrorCode.WAITING_FOR_LAG, ErrorCode.UNEXPECTED_TRUNCATION}
_COMPARED = _LAG | {ErrorCode.WAITING_FOR_CONFIGS}  # reported after the ends were compared; other codes replace the comparison


def is_green(checks: Sequence[GateCheck]) -> bool:
    """Return whether the gate is open: at least one check was made, and none failed."""
    return bool(checks) and all(check.state is not GateCheckState.FAILED for check in checks)


def fail_all(why: str) -> list[GateCheck]:
    """Return the checklist of a topic that cannot be checked, with the reason."""
    return [_failed(name, why) for name in GateCheckName]


def check_data(seen: VerifiedData) -> GateCheck:
    """Check the result of the verification run."""
    if seen.differences is None:
        return _failed(GateCheckName.DATA_VERIFIED, seen.problem)
    if seen.differences:
        text = gettext_lazy(
            "%(differences)s of %(records)s records differ from the source.",
            differences=f"{seen.differences:,}",
            records=f"{seen.records:,}",
        )
        return _failed(GateCheckName.DATA_VERIFIED, text)
    problem = seen.missing or _not_compared(seen)
    if problem:
        return _failed(GateCheckName.DATA_VERIFIED, problem)
    if not seen.records:
        return _passed(
            GateCheckName.DATA_VERIFIED,
            gettext_lazy("No records to compare: the source has none that the mirror could hold."),
        )
    texts = [gettext_lazy("%(count)s records compared, no differences.", count=f"{seen.records:,}")]
    if seen.copied_since:
        texts.append(gettext_lazy("%(count)s offsets were copied since.", count=f"{seen.copied_since:,}"))
    return _passed(GateCheckName.DATA_VERIFIED, join_messages(" ", texts))


def _not_compared(seen: VerifiedData) -> str:
    """Return why the compared records are not all records up to the source's end when the run began; "" if they are."""
    if seen.not_copied is None:
        return gettext_lazy(
            "It is unknown whether the mirror was complete when the comparison began: the source did not return its log end "
            "offsets. Run the verification again."
        )
    if seen.not_copied:
        return gettext_lazy(
            "%(count)s offsets of the source were not on the mirror yet when it was compared. Wait until the mirror is in "
            "sync, then run the verification again.",
            count=f"{seen.not_copied:,}",
        )
    if not seen.records and seen.copied_since:
        return gettext_lazy(
            "No record was compared, and %(count)s offsets were copied since. Run the verification again.",
            count=f"{seen.copied_since:,}",
        )
    return ""


def check_losses(lost: int) -> GateCheck:
    """Check the gap ledger for LOST offsets, which retention deleted at the source before they were copied."""
    if lost:
        text = gettext_lazy("The source deleted %(count)s offsets before they were copied.", count=f"{lost:,}")
        return _failed(GateCheckName.NOTHING_LOST, text)
    return _passed(
        GateCheckName.NOTHING_LOST,
        gettext_lazy("No records were lost: all that the source had since the mirror began was copied."),
    )


def check_blockers(blockers: Iterable[tuple[ErrorCode, str]]) -> list[GateCheck]:
    """Split the blockers of a promotion into lag and the rest. An error that prevented the comparison counts as lag."""
    found = list(blockers)
    lags = [message for code, message in found if code in _LAG]
    others = [message for code, message in found if code not in _LAG]
    unseen = [
        gettext_lazy("The log end offsets were not compared: %(problem)s", problem=message)
        for code, message in found
        if code not in _COMPARED
    ]
    return [
        _judged(GateCheckName.NO_LAG, lags or unseen, gettext_lazy("Both sides end at the same offsets.")),
        _judged(GateCheckName.CONFIGS_EQUAL, others, gettext_lazy("Partitions and configs are equal to the source's.")),
    ]


def check_task(name: TaskName, state: TaskState, problems: Sequence[str]) -> GateCheck:
    """Check a recurring task of the link by comparing both clusters, not by the result of its last run."""
    check = _TASKS[name]
    if state is TaskState.NOT_CONFIGURED:
        detail = gettext_lazy("%(task)s is not enabled on the link. Enable it, or do its work by hand.", task=name)
        return GateCheck(name=check, state=GateCheckState.NOT_APPLICABLE, detail=detail)
    if state in LINK_TROUBLES:
        return _failed(check, gettext_lazy("%(task)s is %(state)s.", task=name, state=state))
    return _judged(check, problems[:_NAMED], gettext_lazy("Both sides are equal within the link's filters."))


def check_canary(reads: Sequence[CanaryRead]) -> GateCheck:
    """Check the reads of an ordinary consumer."""
    problems = [_of_partition(read, read.problem) for read in reads if read.problem]
    if problems or not reads:
        text = join_messages("; ", problems[:_NAMED]) if problems else gettext_lazy("No partition could be read.")
        return _failed(GateCheckName.CANARY_READ, text)
    found = sum(1 for read in reads if read.offset is not None)
    gone = [_of_partition(read, read.gone) for read in reads if read.gone]
    if not gone:
        text = gettext_lazy(
            "A consumer read the newest record of %(found)s of %(count)s partitions, equal.", found=found, count=len(reads)
        )
        return _passed(GateCheckName.CANARY_READ, text)
    text = gettext_lazy(
        "A consumer read the newest record of %(found)s of %(count)s partitions, %(equal)s of them equal. Not compared: "
        "%(others)s.",
        found=found,
        count=len(reads),
        equal=found - len(gone),
        others=join_messages("; ", [*gone[:_NAMED], *(["…"] if len(gone) > _NAMED else [])]),
    )
    return _passed(GateCheckName.CANARY_READ, text)


def _of_partition(read: CanaryRead, what: str) -> TranslatableText:
    return gettext_lazy("partition %(number)s: %(what)s", number=read.partition, what=what)


def _judged(name: GateCheckName, problems: Sequence[str], good: str) -> GateCheck:
    return _failed(name, join_messages(" ", problems)) if problems else _passed(name, good)


def _passed(name: GateCheckName, detail: str) -> GateCheck:
    return GateCheck(name=name, state=GateCheckState.PASSED, detail=detail)


def _failed(name: GateCheckName, detail: str) -> GateCheck:
    return GateCheck(name=name, state=GateCheckState.FAILED, detail=detail)
