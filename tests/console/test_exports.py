"""Files of set-aside records: whole or not there, and never two writers of one."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from console import exports
from linkengine.domain.errors import LinkEngineError


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.EXPORT_DIR = str(tmp_path)
    return tmp_path


def test_a_second_writer_is_sent_away_while_the_first_is_at_it(directory: Path) -> None:
    with exports.writing("one.jsonl.gz") as sink:
        sink(b"first\n")
        with pytest.raises(LinkEngineError, match="Another worker"), exports.writing("one.jsonl.gz"):
            pass
    with exports.writing("one.jsonl.gz") as sink:
        sink(b"again\n")

    assert [one.name for one in directory.iterdir()] == ["one.jsonl.gz"]
    assert gzip.decompress((directory / "one.jsonl.gz").read_bytes()) == b"again\n"


def test_a_complete_file_was_measured_while_it_was_written(directory: Path) -> None:
    with exports.writing("one.jsonl.gz") as sink:
        for number in range(10_000):
            sink(b"%d\n" % number)

    kept = (directory / "one.jsonl.gz").read_bytes()
    assert (sink.written.size_bytes, sink.written.sha256) == (len(kept), hashlib.sha256(kept).hexdigest())


def test_a_file_that_could_not_be_completed_is_not_there(directory: Path) -> None:
    def write_half() -> None:
        with exports.writing("one.jsonl.gz") as sink:
            sink(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()

    assert list(directory.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_told_and_how_to_mend_it(directory: Path, settings: Any) -> None:
    (directory / "file").write_text("")
    settings.EXPORT_DIR = str(directory / "file" / "exports")
    with pytest.raises(LinkEngineError, match="CLUSTERLINK_EXPORT_DIR"), exports.writing("one.jsonl.gz"):
        pass
