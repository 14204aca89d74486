"""A program that is told to end puts away what it began, even if a shell had it ignore SIGINT."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.ending import INTERRUPTED

PROGRAM = """
import sys, time
from pathlib import Path
from devcluster.ending import INTERRUPTED, interruptible
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
def test_what_was_begun_is_put_away(tmp_path: Path, number: signal.Signals) -> None:
    root, begun = Path(__file__).parents[2], tmp_path / "begun"
    in_background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", PROGRAM, str(begun)]
    with subprocess.Popen(in_background, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        assert begun.exists()

        program.send_signal(number)

        assert program.wait(60) == INTERRUPTED
    assert not begun.exists()
