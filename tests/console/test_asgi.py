"""The web process loads everything before its first request."""

import subprocess
import sys

import pytest

_LOAD = """
import gc, sys
import console.asgi
print("console.http.metrics" in sys.modules, gc.get_freeze_count() > len(gc.get_objects()))
"""


@pytest.mark.network
def test_all_views_are_loaded_at_startup_and_exempt_from_garbage_collections() -> None:
    done = subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout.split() == ["True", "True"]
