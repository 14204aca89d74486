"""``python -m linkengine.replay <file> --properties <file> --topic <name>``: write back records that a restore has exported."""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from linkengine import jobs
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import LinkEngineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a file; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m linkengine.replay", description="Write exported records back to a topic.")
    parser.add_argument("file", type=Path, help="gzip of JSON lines, as exported by a restore")
    parser.add_argument("--properties", type=Path, required=True, help="Kafka client properties, name=value lines")
    parser.add_argument("--topic", required=True, help="an ordinary topic with at least as many partitions")
    given = parser.parse_args(arguments)
    try:
        address = address_from_properties(_properties(given.properties))
        written = jobs.replay_records(address, given.topic, lambda: _lines(given.file))
    except (LinkEngineError, OSError, EOFError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{written} records were written to {given.topic}.\n")
    return 0


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") as file:
        yield from file


def _properties(path: Path) -> dict[str, str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {name.strip(): value.strip() for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main())
