"""``make dev``: the web process restarts when a template or a style changes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from devcluster.demo.services import Console, plan_console, start_service
from devcluster.parts import ROOT
from devcluster.processes import Process

TIMEOUT_S = 240.0
pytestmark = pytest.mark.timeout(600)


def test_a_changed_template_or_style_restarts_the_web_process(tmp_path: Path) -> None:
    console = plan_console(tmp_path, redis_url="redis://127.0.0.1:1/0", spark_url="sc://127.0.0.1:1")
    log = tmp_path / "logs" / "web.log"
    log.parent.mkdir()
    process = start_service(console, "web", reload=True)
    try:
        process.wait_until(lambda: _is_up(console), timeout_s=TIMEOUT_S, poll_s=0.2)
        for file in ("templates/base.html", "static/css/theme.css"):
            _touch_until_restarted(ROOT / file, process=process, log=log, started=_starts(log))
            process.wait_until(lambda: _is_up(console), timeout_s=TIMEOUT_S, poll_s=0.2)
    finally:
        process.stop()


def _touch_until_restarted(file: Path, *, process: Process, log: Path, started: int) -> None:
    """Update only the file's time, repeatedly, since the watcher may start with a delay."""
    times = (file.stat().st_atime, file.stat().st_mtime)

    def restarted() -> bool:
        os.utime(file, (times[0], time.time()))
        return _starts(log) > started

    try:
        process.wait_until(restarted, timeout_s=TIMEOUT_S, poll_s=1.0)
    finally:
        os.utime(file, times)


def _starts(log: Path) -> int:
    return log.read_text().count("Application startup complete")


def _is_up(console: Console) -> bool:
    try:
        with urlopen(f"{console.base_url}/healthz", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, TimeoutError, ConnectionError):
        return False
