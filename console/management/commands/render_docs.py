"""``render_docs [--check]``: generate the documents of all states and error codes, or check that they are up to date.

Writes docs/states.md from the transition table, a page per error code of the engine and their table in
docs/operations/troubleshoot/, and the table of the console's own codes in console-errors.md there. The text after the generated
part of a page, and around a table, is written by hand and kept.
"""

from __future__ import annotations

import ast
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.errors import ConsoleError
from console.http.errors import rest_status
from console.models.mirrors import KEPT
from console.web.errors import CONSOLE_HELP, ERROR_HELP, ErrorHelp
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import COPYING, OPERATIONS, TRANSITIONS, WRITABLE, MirrorState

STATES = "docs/states.md"
PLACE = "docs/operations/troubleshoot"
INDEX = "README.md"
CONSOLE = "console-errors.md"
BEGIN = "<!-- from here to the end of the table: written by `make docs`, compared by `make check` -->\n"
END = "<!-- the end of the table -->\n"
PAGE_END = "<!-- written by `make docs` up to here; what follows is written by hand -->\n"
CODES = tuple(str(code) for code in (*ErrorCode, *KEPT) if code != ErrorCode.NO_ERROR)
_KINDS: list[type[ConsoleError]] = [ConsoleError, *ConsoleError.__subclasses__()]
ERRORS: Mapping[str, type[ConsoleError]] = {kind.__name__: kind for kind in _KINDS}
NOTE = "error_note"  # the function that shows a code on a page without an error


class Command(BaseCommand):
    help = "Write the documents of states and error codes; with --check change nothing and fail if a document differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *_args: Any, **options: Any) -> None:
        folder = settings.BASE_DIR / PLACE
        pages = wanted_pages(folder)
        wanted = {STATES: states_document(), **{f"{PLACE}/{name}": text for name, text in pages.items()}}
        different = [path for path, text in wanted.items() if read(settings.BASE_DIR / path) != text]
        obsolete = sorted(path.name for path in folder.glob("*.md") if path.name not in pages)
        if obsolete:
            raise CommandError(f"{PLACE} has pages for error codes that do not exist: {', '.join(obsolete)}. Delete them.")
        if options["check"] and different:
            raise CommandError(f"These documents differ from the code: {', '.join(different)}. Run `make docs`.")
        for path in different:
            (settings.BASE_DIR / path).write_text(wanted[path])


def read(path: Path) -> str:
    """Return the text of a file, or "" if it does not exist."""
    return path.read_text() if path.exists() else ""


# --- states of a mirror topic -----------------------------------------------------------------------------------------


HEAD = """# States of a mirror topic

*Reference.* Generated from `linkengine/domain/states.py` by `make docs`; `make check` compares. Events in **bold** are
operations of users; all other events are raised by the engine. A mirror topic is read-only in every state but STOPPED.
"""


def states_document() -> str:
    """Return the text of docs/states.md."""
    parts = [HEAD, "```mermaid", *_diagram(), "```", "", *_states_table()]
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


def _states_table() -> Iterator[str]:
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


# --- error codes ------------------------------------------------------------------------------------------------------


def wanted_pages(folder: Path) -> dict[str, str]:
    """Return the text of every page by file name, with the handwritten parts of the existing pages."""
    pages = {f"{code}.md": page(ERROR_HELP[code], by_hand=by_hand(read(folder / f"{code}.md"))) for code in CODES}
    raised = console_codes(settings.BASE_DIR / "console")
    tables = {
        INDEX: with_table(read(folder / INDEX), _table(), name=INDEX),
        CONSOLE: with_table(read(folder / CONSOLE), _console_table(raised), name=CONSOLE),
    }
    return {**tables, **pages}


def page(row: ErrorHelp, *, by_hand: str) -> str:
    """Return the page of an error code."""
    fix = f"**What to do.** {row.fix}\n\n" if row.fix else ""
    return f"# {row.code}\n\n*Runbook.*\n\n**What it means.** {row.meaning}\n\n{fix}{PAGE_END}{by_hand}"


def by_hand(document: str) -> str:
    """Return the handwritten part of a page, which follows PAGE_END; the whole page if it has no generated part."""
    _, comment, rest = document.partition(PAGE_END)
    return rest if comment else f"\n{document}" if document else ""


def with_table(document: str, table: Iterable[str], *, name: str) -> str:
    """Return the document with the current table between its comments; raise CommandError if a comment is missing."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise CommandError(f"{PLACE}/{name} has lost the comments around the table of error codes. Restore them from git.")
    return "".join([head, BEGIN, *table, END, tail])


def _table() -> Iterator[str]:
    yield "| code | what it means |\n|---|---|\n"
    for code in CODES:
        meaning = ERROR_HELP[code].meaning.replace("|", "\\|")
        yield f"| [`{code}`]({code}.md) | {meaning} |\n"


def console_codes(folder: Path) -> dict[str, set[type[ConsoleError]]]:
    """Return each code that the modules of a folder give to errors of their own, with the classes of these errors.

    The set is empty for a code that only a page shows. Codes of the engine and of other errors (``code=error.code``) are left
    out. Raises CommandError for a code that is computed in another way, since it could not be listed.
    """
    trees = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    constants = {name: value for tree in trees.values() for name, value in _constants(tree)}
    found: dict[str, set[type[ConsoleError]]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == NOTE:
                for code in _strings(node.args[0]):
                    found.setdefault(code, set())
            elif node.func.id in ERRORS:
                kind = ERRORS[node.func.id]
                code = _code_of(node, kind, constants, place=f"{path}:{node.lineno}")
                if code:
                    found[code].add(kind)
    return {code: kinds for code, kinds in found.items() if code not in CODES}


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names to which a module assigns strings, with their values."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        for name, value in _assigned(node.targets[0], node.value):
            if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield name.id, value.value


def _assigned(target: ast.expr, value: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """Return the pairs of an assignment, several for a tuple: ``A, B = "a", "b"``."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return zip(target.elts, value.elts, strict=True)
    return [(target, value)]


def _code_of(call: ast.Call, kind: type[ConsoleError], constants: Mapping[str, str], *, place: str) -> str:
    """Return the code of an error that is created; "" for a code of the engine or of another error."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
    match given:
        case None:
            return kind.kind.upper()
        case ast.Constant(value=str(code)):
            return code
        case ast.Name(id=name) if name in constants:
            return constants[name]
        case ast.Attribute(value=ast.Name(id="ErrorCode")) | ast.Attribute(value=ast.Name(id="error"), attr="code"):
            return ""
    raise CommandError(f"{place}: the code of this error is not a constant, so it cannot be listed in {PLACE}/{CONSOLE}.")


def _strings(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield node.value


def _console_table(raised: Mapping[str, Iterable[type[ConsoleError]]]) -> Iterator[str]:
    documented = [code for code in CONSOLE_HELP if code not in CODES]
    missing, obsolete = sorted(set(raised) - set(documented)), sorted(set(documented) - set(raised))
    if missing:
        raise CommandError(f"console/web/errors.py does not describe these codes of the console: {', '.join(missing)}.")
    if obsolete:
        raise CommandError(f"console/web/errors.py describes codes that the console does not have: {', '.join(obsolete)}.")
    yield "| code | HTTP status | what it means | what to do |\n|---|---|---|---|\n"
    for code in documented:
        row = CONSOLE_HELP[code]
        yield f"| `{code}` | {_statuses(code, raised[code])} | {row.meaning} | {row.fix} |\n"


def _statuses(code: str, kinds: Iterable[type[ConsoleError]]) -> str:
    """Return HTTP status and error_code of the REST response, for each class of errors that has the code."""
    shown = sorted({rest_status(code=code, kind=kind.kind) for kind in kinds})
    return ", ".join(f"{status}, `error_code` {number}" for status, number in shown) or "none, only shown on pages"
