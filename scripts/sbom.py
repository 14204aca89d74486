"""`make sbom`: the bill of materials of the image as CycloneDX JSON, in var/sbom.cdx.json.

Python packages come from the locked requirements (by cyclonedx-py), Java parts and web assets from the installed jars, and the
jars inside the package pyspark from its folder. System packages of the base images are not included: scan the image for those.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "var" / "sbom.cdx.json"
PROFILES = ("spark", "webjars")  # included in the image; brokers are for tests
TIMEOUT_S = 120


def python_components() -> dict[str, Any]:
    """Return cyclonedx-py's document for the packages that the product needs to run."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    command = [str(program), "requirements", str(ROOT / "requirements-run.txt"), "--pyproject", str(ROOT / "pyproject.toml")]
    command += ["--output-reproducible", "--output-format", "JSON"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def jar_component(jar: Path, *, role: str) -> dict[str, Any]:
    """Return the component of a jar, by its Maven coordinates or, if it has none, by its file name."""
    group, name, version = coordinates(jar)
    purl = f"pkg:maven/{group}/{name}@{version}" if group else f"pkg:generic/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": f"{purl}?file={jar.name}",
        **({"group": group} if group else {}),
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(jar.read_bytes()).hexdigest()}],
        "properties": [{"name": "clusterlink:role", "value": role}],
    }


def coordinates(jar: Path) -> tuple[str, str, str]:
    """Return group, artifact and version from the jar's own pom.properties, or a guess by its file name."""
    stem, _, rest = jar.stem.rpartition("-")
    guess = ("", stem, rest) if stem else ("", jar.stem, "")
    with ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("META-INF/maven/") and name.endswith("/pom.properties"):
                lines = archive.read(name).decode(errors="replace").splitlines()
                properties = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
                if jar.stem == f"{properties.get('artifactId')}-{properties.get('version')}":  # a jar may contain others' files
                    return properties["groupId"], properties["artifactId"], properties["version"]
    return guess


def jars() -> Iterator[dict[str, Any]]:
    """Yield the components of all jars of the image."""
    for profile in PROFILES:
        for jar in sorted((ROOT / "var" / "parts" / profile).glob("*.jar")):
            yield jar_component(jar, role="web assets" if profile == "webjars" else "Spark's Kafka source")
    spark = find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        for jar in sorted((Path(spark.origin).parent / "jars").glob("*.jar")):
            yield jar_component(jar, role="part of the Python package pyspark")


def main() -> int:
    """Write the document; return the exit code."""
    document = python_components()
    document["components"] = [*document.get("components", []), *jars()]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.write(f"{TARGET}: {len(document['components'])} components\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
