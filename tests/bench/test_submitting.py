"""No submitter is left after the measuring process was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.network, pytest.mark.timeout(120)]  # starts processes
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30
MEASURING = """
import os, time
from bench.submitting import Submitters

if __name__ == "__main__":
    with Submitters.to(None) as submitters:
        print(submitters.processes.submit(os.getpid).result(), flush=True)
        time.sleep(600)
"""


def test_submitters_end_when_the_measuring_process_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "measuring.py"
    script.write_text(MEASURING)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment, text=True) as measuring:
        assert measuring.stdout is not None
        submitter = psutil.Process(int(measuring.stdout.readline()))
        family = psutil.Process(measuring.pid).children(recursive=True)
        assert submitter in family
        measuring.kill()

    assert psutil.wait_procs(family, timeout=TIMEOUT_S)[1] == []
