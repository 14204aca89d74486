"""Files of set-aside records: whole or not there, and never two writers of one."""

from __future__ import annotations

import gzip
import hashlib
import os
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from console import exports
from console.models import RestoreRun
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


def test_a_disk_that_is_full_is_told_and_leaves_nothing_behind(directory: Path) -> None:
    """Staged with the largest size of a file; the system refuses a write just so."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, before[1]))
    try:
        with pytest.raises(LinkEngineError, match="with enough space"), exports.writing("one.jsonl.gz") as sink:
            sink(os.urandom(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert list(directory.iterdir()) == []


def test_a_file_that_the_row_does_not_know_is_never_written_over(directory: Path) -> None:
    """The database was put back to a backup from before the export."""
    run = RestoreRun(pk=7, requested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    first = exports.name_for(run, "orders")
    (directory / first).write_text("records of a former life")

    assert exports.name_for(run, "orders") == "orders-7-20260102T030405Z-2.jsonl.gz"
    run.export_name = first
    assert exports.name_for(run, "orders") == first == "orders-7-20260102T030405Z.jsonl.gz"


def test_the_longest_name_of_a_topic_fits(directory: Path) -> None:
    run = RestoreRun(pk=2**31, requested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    with exports.writing(exports.name_for(run, "x" * 249)) as sink:
        sink(b"kept\n")

    assert len(list(directory.iterdir())) == 1
