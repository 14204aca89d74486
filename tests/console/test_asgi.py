"""The web process loads everything before its first request, and handles a request in one thread."""

import os
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


@pytest.mark.network
@pytest.mark.parametrize("second_factor", ["false", "true"])
def test_all_middlewares_run_in_the_thread_of_the_view(second_factor: str) -> None:
    environment = {**os.environ, "CLUSTERLINK_SECOND_FACTOR": second_factor}
    program = "from console import settings; print(settings.MIDDLEWARE[-1])"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stdout.split() == ["console.http.errors.DatabaseOutageMiddleware"]  # the innermost, and sync only
