"""`make audit`: known vulnerabilities of the locked Python packages, base images without a digest, changed Java parts.

Exits with 0 if nothing was found, 1 if something was, 2 if nothing was found but the vulnerability database could not be
reached. Arguments are passed on to pip-audit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts import check_parts, image_digests

ROOT = Path(__file__).resolve().parents[1]
FOUND, UNKNOWN = 1, 2
TIMEOUT_S = 900


class UnreachableError(RuntimeError):
    """pip-audit could not query its database."""


def vulnerabilities(requirements: Path, arguments: Sequence[str] = ()) -> list[str]:
    """Return the findings of pip-audit; raise UnreachableError if it could not query its database."""
    options = ["--requirement", str(requirements), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    command = [sys.executable, "-m", "pip_audit", *options, "--format", "json", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"no response within {TIMEOUT_S} s") from None
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:  # a report is written only if every package was looked up
        raise UnreachableError((done.stderr.strip().splitlines() or ["pip-audit printed nothing"])[-1]) from None
    return [line for dependency in report["dependencies"] for line in _lines(dependency)]


def _lines(dependency: dict[str, Any]) -> list[str]:
    name = f"{dependency['name']} {dependency.get('version', '')}".strip()
    if "skip_reason" in dependency:
        return [f"{name} was not checked: {dependency['skip_reason']}"]
    return [f"{name}: {vuln['id']}, fixed in {', '.join(vuln['fix_versions']) or 'no release'}" for vuln in dependency["vulns"]]


def main(arguments: Sequence[str]) -> int:
    """Print all findings; return the exit code."""
    findings = [f"{image} has no digest: make image-digests" for image in image_digests.without_digest()]
    recorded = check_parts.read_record()
    for profile in sorted({name.split("/")[0] for name in recorded}):
        if (check_parts.PARTS / profile).is_dir():
            wanted = {name: digest for name, digest in recorded.items() if name.split("/")[0] == profile}
            findings += check_parts.mistakes(check_parts.hashes(profile), wanted)
    unreachable = ""
    try:
        findings += vulnerabilities(ROOT / "requirements.txt", arguments)
    except UnreachableError as error:
        unreachable = str(error)
    sys.stdout.writelines(f"{line}\n" for line in findings)
    if unreachable:
        sys.stdout.write(f"Python packages are unchecked: the vulnerability database could not be reached. {unreachable}\n")
    else:
        sys.stdout.write(f"{len(findings)} findings.\n")
    return FOUND if findings else UNKNOWN if unreachable else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
