"""Single figures beside the two tables, each with its goal where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured, in which unit; the goal is a lower bound, or an upper one with ``most``."""

    what: str
    unit: str
    found: float
    goal: float | None = None
    most: bool = False
    digits: int = 0

    @property
    def reached(self) -> str:
        if self.goal is None:
            return "-"
        return "yes" if (self.found <= self.goal if self.most else self.found >= self.goal) else "**no**"


def table(figures: Sequence[Figure]) -> list[str]:
    """Answer the lines of the benchmark page."""
    lines = ["| figure | measured | unit | goal | reached |", "|---|---:|---|---:|---|"]
    return lines + [
        f"| {one.what} | {one.found:,.{one.digits}f} | {one.unit} | {_goal(one)} | {one.reached} |" for one in figures
    ]


def _goal(one: Figure) -> str:
    if one.goal is None:
        return "-"
    return f"{'at most' if one.most else 'at least'} {one.goal:,.0f}"
