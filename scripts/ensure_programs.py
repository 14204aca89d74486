"""Make sure that system programs are installed: `ensure_programs.py redis-server chromium-headless-shell postgresql`.

Installs missing Debian packages if the user may (root with apt-get); otherwise names them and exits with code 1.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALL_TIMEOUT_S = 900  # a browser is large
# Programs that show that a package is installed, or another that serves as well. "gettext" itself is in another package.
PROGRAMS = {"gettext": ["msgfmt"], "chromium-headless-shell": ["chromium-headless-shell", "chromium"]}


def present(package: str) -> bool:
    """Return whether a program of a Debian package is installed; PostgreSQL's server is never on the path."""
    if package == "postgresql":
        return any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or shutil.which("initdb") is not None
    return any(shutil.which(program) is not None for program in PROGRAMS.get(package, [package]))


def install(packages: list[str]) -> bool:
    """Install packages with apt-get; return whether that succeeded."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *arguments], env=environment, timeout=INSTALL_TIMEOUT_S, check=False)
    return done.returncode == 0


def main(packages: list[str]) -> int:
    """Install missing programs, or print which packages to install; return the exit code."""
    missing = [package for package in packages if not present(package)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        sys.stdout.write(f"Installing {', '.join(missing)} ...\n")
        install(missing)
        missing = [package for package in missing if not present(package)]
    if missing:
        sys.stderr.write(f"Missing programs. Please install: sudo apt-get install {' '.join(missing)}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
