"""The type of a row in the table of link configs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ConfigKind(StrEnum):
    """How a value's text is parsed."""

    TEXT = "text"
    NUMBER = "whole number"
    FLAG = "true or false"
    NAMES = "names separated by commas"
    FILTERS = "JSON document"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfigSpec:
    """One row of the table. ``lowest`` and ``highest`` are inclusive."""

    name: str
    description: str
    kind: ConfigKind = ConfigKind.TEXT
    default: str | None = ""
    read_only: bool = False  # cannot be set
    sensitive: bool = False  # write-only
    immutable: bool = False  # can only be set when the link is created
    lowest: int | None = None
    highest: int | None = None
    choices: tuple[str, ...] = ()
    zero: bool = True  # whether 0 is allowed
    refusal: str = ""  # why no value is accepted; "": values are
