"""``render_states [--check]``: generate docs/states.md from the transition table, or check that it is up to date."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from linkengine.domain.states import COPYING, OPERATIONS, TRANSITIONS, WRITABLE, MirrorState

PATH = "docs/states.md"
HEAD = """# States of a mirror topic

*Reference.* Generated from `linkengine/domain/states.py` by `make docs`; `make check` compares. Events in **bold** are
operations of users; all other events are raised by the engine. A mirror topic is read-only in every state but STOPPED.
"""


class Command(BaseCommand):
    help = "Write docs/states.md from the transition table; with --check change nothing and fail if it differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *_args: Any, **options: Any) -> None:
        path, text = settings.BASE_DIR / PATH, render()
        if not options["check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise CommandError(f"{PATH} differs from the transition table. Run `make docs`.")


def render() -> str:
    """Return the whole document."""
    parts = [HEAD, "```mermaid", *_diagram(), "```", "", *_table()]
    return "\n".join(parts) + "\n"


def _diagram() -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {MirrorState.PENDING_SETUP}"
    for state, row in TRANSITIONS.items():
        targets: dict[MirrorState, list[str]] = {}
        for event, target in row.items():
            if target is not state:
                targets.setdefault(target, []).append(event)
        for target, events in targets.items():
            yield f"    {state} --> {target}: {', '.join(events)}"


def _table() -> Iterator[str]:
    yield "| state | copied | writable | event | next state |"
    yield "|---|---|---|---|---|"
    for state, row in TRANSITIONS.items():
        first = f"{state} | {_yes(state in COPYING)} | {_yes(state in WRITABLE)}"
        for event, target in row.items():
            name = f"**{event}**" if event in OPERATIONS else str(event)
            yield f"| {first} | {name} | {target} |"
            first = " | | "


def _yes(fact: object) -> str:
    return "yes" if fact else "no"
