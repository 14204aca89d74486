"""The files with exported diverged records: gzip, written under another name until they are complete and on disk.

Worker and web process use the same directory (``CLUSTERLINK_EXPORT_DIR``). Files outlive their rows and are deleted by users
only, since they may be the only copy of their records.
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
from linkengine.domain.messages import gettext_lazy

_LEVEL = 6
_TOPIC_CHARS = 200  # of the topic's name in the file's: file systems allow 255 bytes, Kafka 249 characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A complete file."""

    size_bytes: int
    sha256: str


class _Tallied:
    """A file whose size and checksum are computed while it is written, since reading it again could take minutes."""

    def __init__(self, raw: BinaryIO) -> None:
        """Start with an empty file."""
        self._raw, self._size, self._digest = raw, 0, hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append."""
        self._raw.write(data)
        self._size += len(data)
        self._digest.update(data)

    def flush(self) -> None:
        """Flush to the operating system."""
        self._raw.flush()

    @property
    def written(self) -> Written:
        """Size and checksum of what was written so far."""
        return Written(size_bytes=self._size, sha256=self._digest.hexdigest())


class Sink:
    """Accepts records for an export; has the size and checksum of the file once it is complete."""

    def __init__(self, file: _Tallied, packed: gzip.GzipFile) -> None:
        """Write to ``file`` through ``packed``."""
        self._file, self._packed = file, packed

    def __call__(self, data: bytes) -> None:
        """Append."""
        self._packed.write(data)

    @property
    def written(self) -> Written:
        """Size and checksum of the complete file."""
        return self._file.written


def path_of(name: str) -> Path:
    """Return the path of an export file."""
    return Path(settings.EXPORT_DIR) / name


def name_for(run: RestoreRun, topic: str) -> str:
    """Return the name for the file of a restore: a new name, or the name that its row already has.

    After a restore of the database from a backup, the row of a file may be missing, and its records exist nowhere else.
    """
    stem = f"{topic[:_TOPIC_CHARS]}-{run.pk}-{run.requested_at:%Y%m%dT%H%M%SZ}"
    names = (f"{stem}-{number}.jsonl.gz" if number > 1 else f"{stem}.jsonl.gz" for number in count(1))
    return next(name for name in names if name == run.export_name or not path_of(name).exists())


@contextmanager
def writing(name: str) -> Iterator[Sink]:
    """Yield a sink; the file gets its name only if the block ends without an error. Each name has a single writer at a time.

    The lock is the operating system's, so that a suspended worker keeps it and a crashed worker does not. Raises
    MISCONFIGURATION_ERROR if the disk accepts no more.
    """
    path = path_of(name)
    _make_directory(path.parent)
    try:
        with _written_beside(path) as sink:
            yield sink
    except (ConnectionError, TimeoutError):  # OSErrors that are not the disk's
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
        f"Records cannot be exported to {directory}, so nothing is deleted ({error.strerror or error}). Give the worker write "
        "access to CLUSTERLINK_EXPORT_DIR, with enough space, or set it to a directory that worker and web process share.",
    )


def _lock(raw: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = path.stat().st_ino == os.fstat(raw.fileno()).st_ino  # otherwise its writer has just finished it
    except (BlockingIOError, FileNotFoundError):
        locked = False
    if not locked:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR,
            f"Another worker is writing {path.stem}. Retried automatically; nothing is deleted before that.",
        )


def is_lost(run: RestoreRun) -> bool:
    """Return whether records were exported to a file that does not exist or is incomplete."""
    if run.exported_at is None or not run.export_name:
        return False
    try:
        size = path_of(run.export_name).stat().st_size
    except OSError:
        return True
    return run.export_bytes is not None and run.export_bytes != size


def download_response(run: RestoreRun | None, restore_id: int) -> FileResponse:
    """Return the download response for a restore's file.

    Raises NotFoundError, with distinct messages for none, not yet and lost.
    """
    if run is None:
        raise NotFoundError(
            gettext_lazy("Restore %(restore_id)s does not exist on this topic. Check the number.", restore_id=restore_id),
            code="UNKNOWN_RESTORE",
        )
    if run.exported_at is None:
        raise NotFoundError(
            gettext_lazy(
                "Restore %(restore_id)s has not exported its diverged records yet. Retry when its exported_at is set.",
                restore_id=restore_id,
            ),
            code="NO_RECORDS_SET_ASIDE",
        )
    if not run.export_name:
        raise NotFoundError(
            gettext_lazy(
                "Restore %(restore_id)s had no diverged records to export. No action is needed.", restore_id=restore_id
            ),
            code="NO_RECORDS_SET_ASIDE",
        )
    if is_lost(run):
        raise NotFoundError(_why_lost(run), code="EXPORT_FILE_MISSING")
    place = path_of(run.export_name)
    return FileResponse(place.open("rb"), as_attachment=True, filename=run.export_name, content_type="application/gzip")


def _why_lost(run: RestoreRun) -> str:
    return gettext_lazy(
        "Restore %(restore)s has exported %(count)s records to %(file)s, but that file is missing or "
        "incomplete in CLUSTERLINK_EXPORT_DIR of the web process. Use the worker's directory for both, or "
        "restore the file from a backup (SHA-256 %(sha256)s).",
        restore=run.pk,
        count=run.export_records,
        file=run.export_name,
        sha256=run.export_sha256 or gettext_lazy("unknown"),
    )


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
