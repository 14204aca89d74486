"""The catalog of translations has every text of the pages, in Japanese, with the same placeholders."""

from __future__ import annotations

import ast
import gettext
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from django.conf import settings

pytestmark = [pytest.mark.network]  # starts programs of gettext

ROOT = Path(__file__).resolve().parent.parent
CATALOG = Path("locale/ja/LC_MESSAGES/django.po")
RECIPE = re.compile(r"^\t\$\(RUN\) manage\.py (makemessages .*)$", re.MULTILINE)
IGNORED = re.compile(r"\$\(addprefix --ignore=,([^)]*)\)")


def run(*command: str, cwd: Path = ROOT, env: Mapping[str, str] = os.environ) -> str:
    """Run a program; return its output, or fail with all of it."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout


def compiled(catalog: Path, target: Path) -> dict[object, str]:
    """Return the translations of a catalog, without those that are marked as fuzzy."""
    run("msgfmt", "--check-format", "-o", str(target), str(catalog))
    with target.open("rb") as file:
        found: dict[object, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key: text for key, text in found.items() if key}


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
def test_the_catalog_of_every_language_is_compiled(file: str) -> None:
    text = (ROOT / file).read_text()

    assert [code for code, _ in settings.LANGUAGES if code != "en" and f"locale/{code}/LC_MESSAGES/django.mo" not in text] == []


def test_placeholders_agree_and_the_plural_forms_are_complete() -> None:
    run("msgfmt", "--check", "-o", "/dev/null", str(ROOT / CATALOG))


@pytest.mark.timeout(600)
def test_every_text_of_the_pages_is_translated(tmp_path: Path) -> None:
    """The command of `make messages` runs in a copy: nothing changes, and nothing is missing or marked as fuzzy."""
    for folder in ("console", "linkengine", "locale", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (recipe,) = RECIPE.findall((ROOT / "Makefile").read_text())
    ignored = [f"--ignore={pattern}" for found in IGNORED.findall(recipe) for pattern in found.split()]

    # `-m` finds the modules of the copy first; linkctl, which the settings import, is that of the project.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "console.settings"}
    run(sys.executable, "-m", "django", *IGNORED.sub("", recipe).split(), *ignored, cwd=tmp_path, env=environment)

    renewed = tmp_path / CATALOG
    assert run("msgattrib", "--untranslated", str(renewed)) == ""
    assert run("msgattrib", "--only-fuzzy", str(renewed)) == ""
    before, after = (compiled(path, tmp_path / f"{name}.mo") for name, path in (("a", ROOT / CATALOG), ("b", renewed)))
    assert len(before) > 1000
    assert sorted(map(str, before.keys() ^ after.keys())) == []


REFUSALS = {
    "BadRequestError",
    "BrokerFailedError",
    "ConflictError",
    "DeniedError",
    "InvalidInputError",
    "NotFoundError",
    "UnavailableError",
}
PROGRAMS = ("api", "management", "migrations")  # and REST: their refusals reach no page


def plain_refusals(source: str) -> list[int]:
    """Return the lines in which a module raises an error of the console with a sentence that is not marked for translation."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args)
    named = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id in REFUSALS)
    return [call.lineno for call in named if isinstance(call.args[0], ast.Constant | ast.JoinedStr)]


def test_refusals_that_pages_show_are_marked_for_translation() -> None:
    modules = [path for path in sorted((ROOT / "console").rglob("*.py")) if path.parts[len(ROOT.parts) + 1] not in PROGRAMS]
    shown = [path for path in modules if not path.stem.endswith("rest")]

    assert len(shown) > 100
    assert {path.name: lines for path in shown if (lines := plain_refusals(path.read_text()))} == {}
    assert plain_refusals('raise ConflictError(f"The link {name} is gone.")\nraise ConflictError(gettext_lazy("It is."))') == [
        1
    ]
