"""The commands that the last step of a new link prints create the same link as the page. They run as printed, over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from console.access.actions import create_api_key
from console.actors import SYSTEM
from console.models import ClusterLink, MirrorTopic
from tests.browser.conftest import Visits
from tests.browser.page_data import EAST, SECRET, PageData
from tests.browser.page_fixtures import DRAFT
from tests.browser.test_journeys import Engine, engine

__all__ = ["engine"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
NAME = "far-to-east"


@pytest.mark.parametrize("command", ["curl", "linkctl"])
def test_printed_command_creates_the_same_link_as_the_page(
    page_data: PageData, visits: Visits, engine: Engine, tmp_path: Path, command: str
) -> None:
    page = visits.start(page_data.admin).open(f"/links/new/{DRAFT}/review/")
    page.locator(f"#command-{command} summary").click()
    text = page.locator(f"#command-{command} pre").inner_text()

    done = run(text, tmp_path, page_data)

    assert done.returncode == 0, done.stdout + done.stderr
    by_command = take_link()
    page.get_by_role("button", name="Create cluster link").click()
    expect(page).to_have_url(re.compile(f"/links/{EAST}/{NAME}/$"))
    assert by_command == take_link()
    assert SECRET in by_command["properties"]["sasl.jaas.config"]


def test_printed_command_of_a_confirmation_operates_on_the_same_topics(
    page_data: PageData, visits: Visits, engine: Engine, tmp_path: Path
) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    for name in ("flights", "planes"):
        page.check(f"#pick-{page_data.mirrors[name].pk}")
    page.locator("#bulk-pause").click()
    page.locator("#rest summary").click()

    done = run(page.locator("#rest pre").inner_text(), tmp_path, page_data)

    assert done.returncode == 0, done.stdout + done.stderr
    paused = MirrorTopic.objects.filter(state="PAUSED", prior_state="ACTIVE")
    assert sorted(paused.values_list("name", flat=True)) == ["flights", "planes"]


def run(text: str, folder: Path, page_data: PageData) -> subprocess.CompletedProcess[str]:
    """Run a printed command with an API key of the administrator."""
    program = folder / "linkctl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m linkctl "$@"\n')
    program.chmod(0o755)
    row, secret = create_api_key(user=page_data.admin, description="printed command", by=SYSTEM, now=timezone.now())
    variables = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "API_KEY": row.key,
        "API_SECRET": secret,
        "LINKCTL_API_KEY": row.key,
        "LINKCTL_API_SECRET": secret,
        "SASL_PASSWORD": SECRET,
    }
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, env=variables, input="", capture_output=True, text=True, timeout=60, check=False
    )


def take_link() -> dict[str, Any]:
    """Return what the new link consists of, and delete it."""
    link = ClusterLink.objects.get(name=NAME)
    found = {
        "properties": dict(link.properties),
        "configs": dict(link.configs.values_list("name", "value")),
        "source": link.source_cluster_id,
        "mode": (link.mode, link.connection_mode, link.prefix),
    }
    link.delete()
    return found
