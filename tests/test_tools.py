"""What is said before anything is installed where a tool is missing or too old."""

from __future__ import annotations

import pytest

from scripts.check_tools import installed_java, java_of, lacking


@pytest.mark.parametrize(
    ("told", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_the_release_of_java_is_read(told: str, release: int | None) -> None:
    assert java_of(told) == release


def test_this_machine_has_what_is_needed() -> None:
    assert lacking(python=(3, 11), java=installed_java(), maven=True) == []


@pytest.mark.parametrize(
    ("python", "java", "maven", "words"),
    [
        ((3, 10), 17, True, ["Python", "this is 3.10"]),
        ((3, 13), 11, True, ["Java", "this is 11"]),
        ((3, 12), None, True, ["Java", "there is none"]),
        ((3, 12), 21, False, ["Maven"]),
    ],
)
def test_what_is_lacking_is_named(python: tuple[int, int], java: int | None, maven: bool, words: list[str]) -> None:
    (line,) = lacking(python=python, java=java, maven=maven)
    assert all(word in line for word in words)
