"""View model of an error: code, message, meaning, fix and times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from console.presenters.badges import Family
from console.presenters.errors import help_for
from console.presenters.numbers import Moment, moment
from linkengine.domain.errors import WAITING, ErrorCode

if TYPE_CHECKING:
    from console.models import StateTransitionError

# Connection errors, which an edit of the link may fix.
_CONNECTION_ERRORS = frozenset(
    {
        ErrorCode.AUTHENTICATION_ERROR,
        ErrorCode.AUTHORIZATION_ERROR,
        ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
        ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        ErrorCode.TIMEOUT_ERROR,
        ErrorCode.MISCONFIGURATION_ERROR,
        ErrorCode.CLUSTER_ID_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorNote:
    """An error with its meaning and fix."""

    code: str
    message: str
    meaning: str
    fix: str
    family: Family = Family.BAD
    since: Moment | None = None
    last_seen: Moment | None = None
    count: int = 1

    @property
    def is_connection_error(self) -> bool:
        """Return True if an edit of the link may fix the error."""
        return self.code in _CONNECTION_ERRORS


def error_note(code: str, message: str, *, now: datetime, since: datetime | None = None) -> ErrorNote | None:
    """Return the note on an error; None if there is no error."""
    if not code or code == ErrorCode.NO_ERROR:
        return None
    known = help_for(code)
    return ErrorNote(
        code=code,
        message=message,
        meaning=known.meaning,
        fix=known.fix,
        family=Family.BUSY if code in WAITING else Family.BAD,
        since=moment(since, now=now),
    )


def transition_notes(errors: Iterable[StateTransitionError], *, now: datetime) -> list[ErrorNote]:
    """Return the notes on the state-transition errors of a mirror, oldest first."""
    return [
        ErrorNote(
            code=error.code,
            message=error.message,
            meaning=help_for(error.code).meaning,
            fix=help_for(error.code).fix,
            family=Family.BUSY if error.code in WAITING else Family.BAD,
            since=moment(error.since, now=now),
            last_seen=moment(error.last_seen_at, now=now),
            count=error.count,
        )
        for error in errors
    ]
