"""What a coded value looks like: one shape for states, results and reasons. Colours are families; theme.css paints them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """A colour family; ``static/css/states.css`` has a light and a dark pair for each, checked for contrast."""

    OK = "ok"  # works as wanted
    IDLE = "idle"  # rests because a person said so
    BUSY = "busy"  # on its way to another state
    DONE = "done"  # over, final
    WARN = "warn"  # needs attention, mends itself
    BAD = "bad"  # needs a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Label, icon and family of one code, with a sentence that explains it and what a person may do next."""

    code: str
    label: str
    icon: str  # a name of static/icons.txt
    family: Family
    meaning: str
    next_step: str = ""
