"""Paths of the third-party parts that `make setup` installs, and clear errors if they are missing.

It has paths only, and starts nothing.
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VAR = ROOT / "var"
PARTS = (VAR / "parts").resolve()  # a folder may serve several checkouts: class data archives contain its path
KAFKA_ARCHIVE = PARTS / "kafka.jsa"  # both written by devcluster/archive.py; the programs start without them, too
SPARK_ARCHIVE = PARTS / "spark.jsa"


class PartsMissingError(RuntimeError):
    """A program or jar that `make setup` installs is missing."""


def kafka_classpath(*, version: str) -> str:
    """Return the class path with the jars of a Kafka version, in a stable order."""
    folder = PARTS / "kafka"
    if not (folder / f"kafka_2.13-{version}.jar").exists():
        folder = PARTS / f"kafka-{version}"
    return ":".join(str(jar) for jar in _jars(folder, needs=f"kafka_2.13-{version}.jar"))


def spark_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source."""
    return _jars(PARTS / "spark", needs="spark-sql-kafka-0-10_*.jar")


def archive_flags(archive: Path) -> list[str]:
    """Return the JVM flag for a class data archive; none if it does not exist."""
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def program(name: str, *, package: str) -> str:
    """Return the path of an installed program, or raise an error with the package that contains it."""
    found = shutil.which(name)
    if found is None:
        raise PartsMissingError(f"`{name}` is not installed. Run `make setup`, or install the Debian package {package}.")
    return found


def _jars(folder: Path, *, needs: str) -> list[Path]:
    if not any(folder.glob(needs)):
        raise PartsMissingError(f"{needs} is not in {folder}. Run `make setup` first.")
    return sorted(folder.glob("*.jar"))
