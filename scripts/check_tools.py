"""Report missing or too old tools that this project does not install itself: Python, Java, Maven.

Runs before anything is installed, with any Python version, so it needs only the standard library.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

PYTHON, JAVA = (3, 11), 17  # minimum versions
_QUOTED = re.compile(r'version "(?:1\.)?(\d+)')  # Java 8 reports 1.8


def java_of(output: str) -> int | None:
    """Return the major version in the output of ``java -version``."""
    found = _QUOTED.search(output)
    return int(found[1]) if found else None


def installed_java() -> int | None:
    """Return the major version of the Java on the path."""
    if shutil.which("java") is None:
        return None
    return java_of(subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr)


def lacking(*, python: tuple[int, int], java: int | None, maven: bool) -> list[str]:
    """Return messages about the tools that must be installed first."""
    found = []
    if python < PYTHON:
        found.append(f"Python 3.11 or newer is needed, this is {python[0]}.{python[1]}: make PYTHON=python3.11.")
    if java is None or java < JAVA:
        what = "there is none" if java is None else f"this is {java}"
        found.append(f"Java {JAVA} or newer is needed on the path, {what}: apt-get install openjdk-{JAVA}-jre-headless.")
    return found if maven else [*found, "Maven is needed on the path, there is none: apt-get install maven."]


def main() -> int:
    """Print the missing tools; return 1 if there are any."""
    found = lacking(python=sys.version_info[:2], java=installed_java(), maven=shutil.which("mvn") is not None)
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
