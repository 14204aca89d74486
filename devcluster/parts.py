"""Where the third-party parts lie that `make setup` installs, and a clear word when they are missing.

Knows paths only; starts nothing.
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VAR = ROOT / "var"
PARTS = (VAR / "parts").resolve()  # one folder may serve several checkouts: class archives hold its path
KAFKA_ARCHIVE = PARTS / "kafka.jsa"  # both made by devcluster/archive.py; the programs start without them, too
SPARK_ARCHIVE = PARTS / "spark.jsa"


class PartsMissingError(RuntimeError):
    """A program or a jar that `make setup` installs is not there."""


def kafka_classpath(*, version: str) -> str:
    """Return the class path of one Kafka version's jars, in a stable order."""
    folder = PARTS / "kafka"
    if not (folder / f"kafka_2.13-{version}.jar").exists():
        folder = PARTS / f"kafka-{version}"
    return ":".join(str(jar) for jar in _jars(folder, needs=f"kafka_2.13-{version}.jar"))


def spark_jars() -> list[Path]:
    """Return the jars that teach Spark to read Kafka."""
    return _jars(PARTS / "spark", needs="spark-sql-kafka-0-10_*.jar")


def archive_flags(archive: Path) -> list[str]:
    """Return the JVM flag that uses a class archive, none when it has not been made."""
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def program(name: str, *, package: str) -> str:
    """Return the path of an installed program, or name the package that brings it."""
    found = shutil.which(name)
    if found is None:
        raise PartsMissingError(f"`{name}` is not installed. Run `make setup`, or install the Debian package {package}.")
    return found


def _jars(folder: Path, *, needs: str) -> list[Path]:
    if not any(folder.glob(needs)):
        raise PartsMissingError(f"{needs} is not in {folder}. Run `make setup` first.")
    return sorted(folder.glob("*.jar"))
