"""Single figures beside the two tables, some with a goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value with its unit; the goal is a lower bound, or an upper bound with ``most``."""

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
    """Return the lines of the benchmark page."""
    lines = ["| figure | measured | unit | goal | reached |", "|---|---:|---|---:|---|"]
    return lines + [
        f"| {figure.what} | {figure.found:,.{figure.digits}f} | {figure.unit} | {_goal(figure)} | {figure.reached} |"
        for figure in figures
    ]


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return "-"
    return f"{'at most' if figure.most else 'at least'} {figure.goal:,.{figure.digits}f}"
