"""An interruptible program cleans up on SIGTERM and SIGINT, even if a shell started it with SIGINT ignored."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.signals import INTERRUPTED

PROGRAM = """
import sys, time
from pathlib import Path
from devcluster.signals import INTERRUPTED, interruptible
begun = Path(sys.argv[1])
begun.touch()
try:
    with interruptible():
        print("up", flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    begun.unlink()
    sys.exit(INTERRUPTED)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_cleans_up_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    root, begun = Path(__file__).parents[2], tmp_path / "begun"
    in_background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", PROGRAM, str(begun)]
    with subprocess.Popen(in_background, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        assert begun.exists()

        program.send_signal(number)

        assert program.wait(60) == INTERRUPTED
    assert not begun.exists()
