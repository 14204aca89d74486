"""The distribution's dependencies are those of the command line; the server's, such as Django and Spark, are an extra."""

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
    """Return the names of the installed distributions that these requirements need, transitively."""
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
    """A folder with linkctl and the dependencies of its distribution, and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "linkctl").symlink_to(ROOT / "linkctl")
    for name in closure(PROJECT["dependencies"]):
        for file in metadata.files(name) or ():
            top = Path(file).parts[0]
            target = folder / top
            if ".." not in top and not target.exists() and Path(str(metadata.distribution(name).locate_file(top))).exists():
                target.symlink_to(str(metadata.distribution(name).locate_file(top)))
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with only its standard library and the folder on the path."""
    environment = {"PYTHONPATH": str(folder), "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_distribution_requires_few_and_light_packages() -> None:
    needed = closure(PROJECT["dependencies"])

    assert not needed & HEAVY
    assert len(needed) < 20


def test_the_server_extra_has_the_heavy_dependencies() -> None:
    server = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["server"]}

    assert server >= HEAVY
    assert "clusterlink[server]" in PROJECT["optional-dependencies"]["dev"]


def test_linkctl_runs_with_the_distributions_dependencies_only(alone: Path) -> None:
    version = run(alone, "-m", "linkctl", "--version")
    missing = run(alone, "-c", "import django")
    modules = sorted(file.stem for file in (ROOT / "linkctl").glob("*.py") if file.stem != "__main__")
    imports = run(alone, "-c", "".join(f"import linkctl.{name}\n" for name in modules if name != "__init__"))
    listed = run(alone, "-m", "linkctl", "--url", "http://127.0.0.1:1", "--cluster", "x", "link", "list")

    assert (version.returncode, version.stdout) == (0, f"linkctl, version {linkctl.__version__}\n"), version.stderr
    assert "ModuleNotFoundError" in missing.stderr
    assert imports.returncode == 0, imports.stderr
    assert (listed.returncode, "API key" in listed.stderr) == (2, True)


def test_the_version_is_that_of_the_distribution() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", linkctl.__version__)
