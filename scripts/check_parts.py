"""Compare the Java parts with the hashes recorded in ``devcluster/parts.sha256``: `check_parts.py [--write] [profile …]`.

Maven verifies downloads against checksums of the same repository; this compares them with reviewed hashes. A jar without a
record, a record without a jar and a different hash are errors. `--write` records the installed jars, after a change of the pom.
Standard library only.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "devcluster" / "parts.sha256"
PARTS = ROOT / "var" / "parts"


def read_record(path: Path = RECORD) -> dict[str, str]:
    """Return the recorded hash of each jar, by ``profile/name``."""
    pairs = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, name in pairs}


def hashes(profile: str, parts: Path = PARTS) -> dict[str, str]:
    """Return the hash of each jar of a profile. A profile that is being installed is in ``<profile>.new``."""
    folder = next((place for place in (parts / f"{profile}.new", parts / profile) if place.is_dir()), None)
    jars = sorted(folder.glob("*.jar")) if folder else []
    return {f"{profile}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}


def mistakes(found: dict[str, str], recorded: dict[str, str]) -> list[str]:
    """Return the differences as texts."""
    missing = [f"{name} is recorded, but was not installed." for name in sorted(recorded.keys() - found.keys())]
    unknown = [f"{name} has no recorded hash." for name in sorted(found.keys() - recorded.keys())]
    changed = [
        f"{name} has the hash {found[name]}, recorded is {recorded[name]}."
        for name in sorted(found.keys() & recorded.keys())
        if found[name] != recorded[name]
    ]
    return missing + unknown + changed


def main(arguments: list[str]) -> int:
    """Compare the hashes, or write the record; return the exit code."""
    recorded = read_record()
    profiles = [word for word in arguments if word != "--write"] or sorted({name.split("/")[0] for name in recorded})
    found = {name: digest for profile in profiles for name, digest in hashes(profile).items()}
    chosen = {name: digest for name, digest in recorded.items() if name.split("/")[0] in profiles}
    if "--write" in arguments:
        rest = {name: digest for name, digest in recorded.items() if name not in chosen}
        lines = [f"{digest}  {name}\n" for name, digest in sorted({**rest, **found}.items())]
        RECORD.write_text("".join(lines))
        return 0
    errors = mistakes(found, chosen)
    sys.stderr.writelines(f"{line}\n" for line in errors)
    if errors:
        sys.stderr.write("These Java parts are not those that were recorded. If devcluster/pom.xml changed: make part-hashes\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
