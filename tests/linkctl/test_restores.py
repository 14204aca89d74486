"""``linkctl mirror restore`` and ``recover``: list restores, download and check exports, recover a failed mirror."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from console.mirrors import diverged_exports
from console.models import MirrorTopic, RestoreRun
from linkctl.cli import PROGRAM
from linkengine.domain.states import MirrorState
from tests.console.api.actors import NOW, Boundary, Rest
from tests.linkctl.conftest import Run, read_json

ON = ("--link", "from-source")
FILE = "orders-1.jsonl.gz"


@pytest.fixture
def restore(make_mirror: Any, settings: Any, tmp_path: Path) -> RestoreRun:
    """A restore that has exported two records, after a restore of a topic without diverged records."""
    settings.EXPORT_DIR = str(tmp_path / "exports")
    mirror = make_mirror("orders")
    with diverged_exports.writing(FILE) as sink:
        sink(b"{}\n{}\n")
    requested = {"mirror": mirror, "requested_by": "owner", "requested_at": NOW}
    RestoreRun.objects.create(**requested, in_place=True)
    written = sink.written
    kept = {"export_name": FILE, "export_records": 2, "export_sha256": written.sha256, "export_bytes": written.size_bytes}
    points = [{"partition": 0, "start": 0, "end": 12, "common": 10, "records": 2}]
    return RestoreRun.objects.create(**requested, points=points, agreed_at=NOW, exported_at=NOW, **kept)


def test_restores_are_listed_with_their_exports(run: Run, restore: RestoreRun) -> None:
    table = run("mirror", "restore", "list", "orders", *ON).stdout.splitlines()
    found = read_json(run("mirror", "restore", "list", "orders", *ON, "--json"))["data"]

    assert table[0].split() == ["ID", "BY", "AT", "OUTCOME", "TRUNCATED", "EXPORTED", "BYTES", "FILE"]
    assert [line.split()[0] for line in table[1:]] == [str(row["id"]) for row in found]
    assert any("records exported" in line and line.endswith(FILE) for line in table)
    assert any("nothing diverged" in line for line in table)


def test_an_export_is_downloaded_and_the_replay_command_shown(run: Run, restore: RestoreRun, tmp_path: Path) -> None:
    result = run("mirror", "restore", "download", "orders", str(restore.pk), *ON)

    assert result.exit_code == 0, result.output
    assert gzip.decompress((tmp_path / FILE).read_bytes()) == b"{}\n{}\n"
    assert restore.export_sha256 in result.stdout
    replay = f"python -m linkengine.replay {FILE} --properties client.properties --topic orders-recovered"
    assert replay in result.stdout


def test_an_existing_file_is_not_overwritten(run: Run, restore: RestoreRun, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("mine")

    refused = run("mirror", "restore", "download", "orders", str(restore.pk), *ON)
    taken = run("mirror", "restore", "download", "orders", str(restore.pk), *ON, "--to", "other.gz")

    assert (refused.exit_code, taken.exit_code) == (2, 0)
    assert (tmp_path / FILE).read_text() == "mine"
    assert (tmp_path / "other.gz").exists()


def test_a_damaged_download_leaves_no_file(run: Run, restore: RestoreRun, tmp_path: Path) -> None:
    RestoreRun.objects.filter(pk=restore.pk).update(export_sha256="0" * 64)

    result = run("mirror", "restore", "download", "orders", str(restore.pk), *ON)

    assert result.exit_code == 5
    assert "Download it again" in result.output
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_failed_downloads_have_different_exit_codes(run: Run, restore: RestoreRun, reader: Rest) -> None:
    command = ("mirror", "restore", "download", "orders")
    RestoreRun.objects.exclude(pk=restore.pk).update(export_name="")
    empty = RestoreRun.objects.exclude(pk=restore.pk).get().pk

    assert run(*command, "999", *ON).exit_code == 3
    assert run(*command, str(empty), *ON).exit_code == 3
    assert run(*command, str(restore.pk), *ON, as_=reader).exit_code == 4
    assert run(*command, str(restore.pk), *ON, "--to", "no/such/folder/x.gz").exit_code == 2


def test_restore_numbers_are_completed(run: Run, restore: RestoreRun) -> None:
    words = (PROGRAM, "mirror", "restore", "download", *ON, "orders", str(restore.pk)[0])
    line = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}

    assert f"plain,{restore.pk}" in run(_LINKCTL_COMPLETE="bash_complete", **line).stdout.split()


def test_a_failed_mirror_is_recovered(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")
    assert run("mirror", "recover", "orders", *ON).exit_code == 1  # it is active
    MirrorTopic.objects.update(state=MirrorState.FAILED, error_code="AUTHORIZATION_ERROR")

    assert "dry run" in run("mirror", "recover", "orders", *ON, "--dry-run").stdout
    assert MirrorTopic.objects.get().state == MirrorState.FAILED
    assert run("mirror", "recover", "orders", *ON).exit_code == 0
    assert MirrorTopic.objects.get().state != MirrorState.FAILED
