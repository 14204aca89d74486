"""The files in which set-aside records are kept: gzip, written under another name until they are complete and on disk.

Worker and web process see the same directory (``CLUSTERLINK_EXPORT_DIR``). Files outlive their rows: nobody else may hold these
records any more, so only a person deletes them.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.http import FileResponse

from console.errors import NotFoundError
from console.models import RestoreRun
from linkengine.domain.errors import ErrorCode, LinkEngineError

_LEVEL = 6
_TOPIC_CHARS = 200  # of its name in the file's: file systems take 255 bytes, Kafka 249 characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A complete file."""

    size_bytes: int
    sha256: str


class _Tallied:
    """A file that is measured while it is written: to read a long one again takes minutes, in which both topics move on."""

    def __init__(self, raw: BinaryIO) -> None:
        """Begin with an empty file."""
        self._raw, self._size, self._digest = raw, 0, hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append."""
        self._raw.write(data)
        self._size += len(data)
        self._digest.update(data)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._raw.flush()

    @property
    def written(self) -> Written:
        """What was written until now."""
        return Written(size_bytes=self._size, sha256=self._digest.hexdigest())


class Sink:
    """Takes what is to be kept; once the file is complete it tells its size and checksum."""

    def __init__(self, file: _Tallied, packed: gzip.GzipFile) -> None:
        """Write to ``file`` through ``packed``."""
        self._file, self._packed = file, packed

    def __call__(self, data: bytes) -> None:
        """Append."""
        self._packed.write(data)

    @property
    def written(self) -> Written:
        """The complete file."""
        return self._file.written


def path_of(name: str) -> Path:
    """Answer where a file lies."""
    return Path(settings.EXPORT_DIR) / name


def name_for(run: RestoreRun, topic: str) -> str:
    """Name the file of a restore: one that is not there yet, or that its row knows as its own.

    A database that was put back to a backup knows of no file, and what is in it may be nowhere else any more.
    """
    stem = f"{topic[:_TOPIC_CHARS]}-{run.pk}-{run.requested_at:%Y%m%dT%H%M%SZ}"
    names = (f"{stem}-{number}.jsonl.gz" if number > 1 else f"{stem}.jsonl.gz" for number in count(1))
    return next(name for name in names if name == run.export_name or not path_of(name).exists())


@contextmanager
def writing(name: str) -> Iterator[Sink]:
    """Give a sink; the file appears under its name only if the block ends without an error. One writer of a name at a time.

    The lock is the operating system's: a worker that slept keeps it, one that died does not. Raises MISCONFIGURATION_ERROR
    where the disk takes no more.
    """
    path = path_of(name)
    _make_directory(path.parent)
    try:
        with _written_beside(path) as sink:
            yield sink
    except (ConnectionError, TimeoutError):  # no disk's
        raise
    except OSError as error:
        raise _unwritable(path.parent, error) from error


@contextmanager
def _written_beside(path: Path) -> Iterator[Sink]:
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("ab") as raw:
        _lock(raw, unfinished)
        try:
            raw.truncate(0)
            file = _Tallied(raw)
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as packed:
                yield Sink(file, packed)
            file.flush()
            os.fsync(raw.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    _sync_directory(path.parent)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"no right to write to {directory}")
    except OSError as error:
        raise _unwritable(directory, error) from error


def _unwritable(directory: Path, error: OSError) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MISCONFIGURATION_ERROR,
        f"Records cannot be set aside in {directory}, so nothing is deleted ({error.strerror or error}). Let the worker "
        "write to CLUSTERLINK_EXPORT_DIR, with room for them, or set it to a directory that worker and web process share.",
    )


def _lock(raw: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = path.stat().st_ino == os.fstat(raw.fileno()).st_ino  # else its writer has just finished it
    except (BlockingIOError, FileNotFoundError):
        ours = False
    if not ours:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR, f"Another worker is writing {path.stem}. Tried again by itself; nothing is deleted before."
        )


def is_lost(run: RestoreRun) -> bool:
    """Tell whether records were set aside into a file that is not there, or not whole."""
    if run.exported_at is None or not run.export_name:
        return False
    try:
        size = path_of(run.export_name).stat().st_size
    except OSError:
        return True
    return run.export_bytes is not None and run.export_bytes != size


def answer(run: RestoreRun | None, restore_id: int) -> FileResponse:
    """Answer the file of a restore for a download; raise NotFoundError, which tells none, not yet and lost apart."""
    if run is None:
        raise NotFoundError(f"Restore {restore_id} does not exist on this topic.", code="UNKNOWN_RESTORE")
    if run.exported_at is None:
        raise NotFoundError(f"Restore {restore_id} has not set its records aside yet.", code="NO_RECORDS_SET_ASIDE")
    if not run.export_name:
        raise NotFoundError(f"Restore {restore_id} had no records to set aside.", code="NO_RECORDS_SET_ASIDE")
    if is_lost(run):
        raise NotFoundError(_why_lost(run), code="EXPORT_FILE_MISSING")
    place = path_of(run.export_name)
    return FileResponse(place.open("rb"), as_attachment=True, filename=run.export_name, content_type="application/gzip")


def _why_lost(run: RestoreRun) -> str:
    return (
        f"Restore {run.pk} has set {run.export_records} records aside in {run.export_name}, but that file is not in "
        "CLUSTERLINK_EXPORT_DIR of the web process, or not whole. Let it be the worker's directory, or put the file back from "
        f"a backup (SHA-256 {run.export_sha256 or 'unknown'})."
    )


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
