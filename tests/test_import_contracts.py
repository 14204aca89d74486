"""The import contracts in pyproject.toml name every module; import-linter checks that for direct children of a package only."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOT_IN_WEB_PROCESS = {"console.tasks", "console.workflows", "console.migrations"}


def contract(beginning: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: dict[str, Any] = next(
        entry for entry in settings["tool"]["importlinter"]["contracts"] if entry["name"].startswith(beginning)
    )
    return found


def console_layers() -> list[set[str]]:
    lines = contract("The console is layered")["layers"]
    return [{f"console.{name.strip()}" for name in re.split("[:|]", line)} for line in lines]


def modules_of(package: str) -> set[str]:
    folder = ROOT.joinpath(*package.split("."))
    return {f"{package}.{path.stem}" for path in folder.iterdir() if is_module(path) and path.stem != "__init__"}


def is_module(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").exists()


def test_every_module_of_the_console_is_in_a_layer() -> None:
    listed = set().union(*console_layers())
    split = {f"console.{name}" for name in contract("The console is layered")["exhaustive_ignores"]}

    for package in split:
        assert modules_of(package) <= listed, package
    assert modules_of("console") <= listed | split


@pytest.mark.parametrize("beginning", ["Actions do not import queries", "REST does not import pages"])
@pytest.mark.parametrize("side", ["source_modules", "forbidden_modules"])
def test_contract_between_layers_names_whole_layers(beginning: str, side: str) -> None:
    named = set(contract(beginning)[side])

    assert named == set().union(*(layer for layer in console_layers() if layer & named))


def test_every_module_of_the_web_process_is_kept_from_spark_and_kafka() -> None:
    named = set(contract("The web process loads neither Spark nor sockets of Kafka")["source_modules"])

    assert named == modules_of("console") - NOT_IN_WEB_PROCESS


def test_every_module_of_the_copy_job_that_claims_no_io_is_kept_from_sockets() -> None:
    paths = sorted(ROOT.glob("linkengine/copyjob/**/*.py"))
    claims = {
        path for path in paths if "no i/o" in (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0].lower()
    }

    assert len(claims) > 5
    named = contract("Values and arithmetic of the copy job open no sockets")["source_modules"]
    assert {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in claims} <= set(named)
