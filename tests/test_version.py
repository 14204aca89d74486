"""The version is written in ``linkctl/__init__.py`` only; everything else reads it or is compared with it."""

import re
import tomllib
from pathlib import Path

import yaml
from django.conf import settings

from console.api.schema import document
from linkctl import __version__

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bench", "chaos", "clients", "console", "deploy", "devcluster", "linkctl", "linkengine", "scripts", "templates")


def test_settings_and_openapi_document_have_the_version() -> None:
    assert [settings.VERSION, document()["info"]["version"]] == [__version__, __version__]


def test_pyproject_reads_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "linkctl.__version__"}


def test_compose_tags_the_image_with_the_version() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

    assert {services[name]["image"] for name in ("web", "worker", "beat")} == {f"clusterlink:{__version__}"}


def test_no_source_repeats_the_version() -> None:
    literal = re.compile(rf"[\"']v?{re.escape(__version__)}[\"']")
    sources = (path for package in PACKAGES for kind in ("*.py", "*.html") for path in (ROOT / package).rglob(kind))

    assert [path for path in sources if literal.search(path.read_text())] == [ROOT / "linkctl" / "__init__.py"]
