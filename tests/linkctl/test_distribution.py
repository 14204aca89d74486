"""The command line alone needs neither Django nor Spark: the distribution's own dependencies are its, the rest is an extra."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import linkctl

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = {"django", "pyspark", "celery", "redis", "confluent-kafka", "kafka-python", "pandas", "pyarrow", "psycopg"}


def closure(requirements: list[str]) -> set[str]:
    """Return the names of the distributions that these requirements install here."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = str(canonicalize_name(requirement.name))
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in found:
                found.add((name, wanted))
                waiting += [(Requirement(text), wanted) for text in metadata.requires(name) or ()]
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with linkctl and what its distribution requires, and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "linkctl").symlink_to(ROOT / "linkctl")
    for name in closure(PROJECT["dependencies"]):
        for file in metadata.files(name) or ():
            top = Path(file).parts[0]
            place = folder / top
            if ".." not in top and not place.exists() and Path(str(metadata.distribution(name).locate_file(top))).exists():
                place.symlink_to(str(metadata.distribution(name).locate_file(top)))
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python that sees its standard library and the folder only."""
    environment = {"PYTHONPATH": str(folder), "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_distribution_itself_requires_little() -> None:
    needed = closure(PROJECT["dependencies"])

    assert not needed & HEAVY
    assert len(needed) < 20


def test_the_server_is_an_extra_with_all_the_rest() -> None:
    server = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["server"]}

    assert server >= HEAVY
    assert "clusterlink[server]" in PROJECT["optional-dependencies"]["dev"]


def test_linkctl_runs_with_its_own_requirements_only(alone: Path) -> None:
    version = run(alone, "-m", "linkctl", "--version")
    missing = run(alone, "-c", "import django")
    modules = sorted(file.stem for file in (ROOT / "linkctl").glob("*.py") if file.stem != "__main__")
    everything = run(alone, "-c", "".join(f"import linkctl.{name}\n" for name in modules if name != "__init__"))
    asked = run(alone, "-m", "linkctl", "--url", "http://127.0.0.1:1", "--cluster", "x", "link", "list")

    assert (version.returncode, version.stdout) == (0, f"linkctl, version {linkctl.__version__}\n"), version.stderr
    assert "ModuleNotFoundError" in missing.stderr
    assert everything.returncode == 0, everything.stderr
    assert (asked.returncode, "API key" in asked.stderr) == (2, True)


def test_the_version_is_that_of_the_distribution() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", linkctl.__version__)
