"""What the table of link configs tells about one config."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ConfigKind(StrEnum):
    """How the text of a value is read."""

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
    read_only: bool = False  # nobody may set it
    sensitive: bool = False  # write-only
    immutable: bool = False  # only while the link is created
    lowest: int | None = None
    highest: int | None = None
    choices: tuple[str, ...] = ()
    zero: bool = True  # whether 0 means anything
    refusal: str = ""  # why no value can be taken
