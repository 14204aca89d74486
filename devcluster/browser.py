"""Names the browser in which pages are tested and measured, with its flags. Playwright drives it."""

from __future__ import annotations

import shutil

# The shell is Chromium without windows: the same pages for half of the processor time. Some distributions do not have it.
PROGRAMS = ("chromium-headless-shell", "chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]


def browser_path() -> str:
    """Return the path of the first browser that is installed. Raise RuntimeError if none is."""
    for program in PROGRAMS:
        if (path := shutil.which(program)) is not None:
            return path
    raise RuntimeError(f"There is no program {' or '.join(PROGRAMS)} on the path. Install one of the packages of that name.")
