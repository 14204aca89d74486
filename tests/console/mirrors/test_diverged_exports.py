"""Export files: complete or absent, and never written by two workers at once."""

from __future__ import annotations

import gzip
import hashlib
import os
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from console.mirrors import diverged_exports
from console.models import RestoreRun
from linkengine.domain.errors import LinkEngineError


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.EXPORT_DIR = str(tmp_path)
    return tmp_path


def test_second_writer_is_refused_while_the_first_is_writing(directory: Path) -> None:
    with diverged_exports.writing("export.jsonl.gz") as sink:
        sink(b"first\n")
        with pytest.raises(LinkEngineError, match="Another worker"), diverged_exports.writing("export.jsonl.gz"):
            pass
    with diverged_exports.writing("export.jsonl.gz") as sink:
        sink(b"again\n")

    assert [file.name for file in directory.iterdir()] == ["export.jsonl.gz"]
    assert gzip.decompress((directory / "export.jsonl.gz").read_bytes()) == b"again\n"


def test_size_and_checksum_are_computed_while_writing(directory: Path) -> None:
    with diverged_exports.writing("export.jsonl.gz") as sink:
        for number in range(10_000):
            sink(b"%d\n" % number)

    kept = (directory / "export.jsonl.gz").read_bytes()
    assert (sink.written.size_bytes, sink.written.sha256) == (len(kept), hashlib.sha256(kept).hexdigest())


def test_incomplete_file_is_removed(directory: Path) -> None:
    def write_half() -> None:
        with diverged_exports.writing("export.jsonl.gz") as sink:
            sink(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()

    assert list(directory.iterdir()) == []


def test_unusable_directory_is_reported_with_the_setting(directory: Path, settings: Any) -> None:
    (directory / "file").write_text("")
    settings.EXPORT_DIR = str(directory / "file" / "exports")
    with pytest.raises(LinkEngineError, match="CLUSTERLINK_EXPORT_DIR"), diverged_exports.writing("export.jsonl.gz"):
        pass


def test_full_disk_is_reported_and_leaves_no_file(directory: Path) -> None:
    """The disk is simulated by the file size limit, which makes a write fail in the same way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, before[1]))
    try:
        with pytest.raises(LinkEngineError, match="with enough space"), diverged_exports.writing("export.jsonl.gz") as sink:
            sink(os.urandom(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert list(directory.iterdir()) == []


def test_file_missing_from_the_row_is_never_overwritten(directory: Path) -> None:
    """The database was restored from a backup from before the export."""
    run = RestoreRun(pk=7, requested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    first = diverged_exports.name_for(run, "orders")
    (directory / first).write_text("records of an earlier restore")

    assert diverged_exports.name_for(run, "orders") == "orders-7-20260102T030405Z-2.jsonl.gz"
    run.export_name = first
    assert diverged_exports.name_for(run, "orders") == first == "orders-7-20260102T030405Z.jsonl.gz"


def test_longest_topic_name_fits_into_the_file_name(directory: Path) -> None:
    run = RestoreRun(pk=2**31, requested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    with diverged_exports.writing(diverged_exports.name_for(run, "x" * 249)) as sink:
        sink(b"kept\n")

    assert len(list(directory.iterdir())) == 1
