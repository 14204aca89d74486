"""The display of a code (state, result, reason): label, icon, colour family and texts. theme.css defines the colours."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """A colour family; ``static/css/states.css`` has a light and a dark pair for each, checked for contrast."""

    OK = "ok"  # works
    IDLE = "idle"  # paused by a user
    BUSY = "busy"  # in transition to another state
    DONE = "done"  # final
    WARN = "warn"  # needs attention; may recover automatically
    BAD = "bad"  # needs an action by a user


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """The label, icon and family of a code, with its meaning and the next step for the user."""

    code: str
    label: str
    icon: str  # a name of static/icons.txt
    family: Family
    meaning: str
    next_step: str = ""
