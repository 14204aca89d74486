"""``linkctl mirror restore`` and ``recover``: what was set aside is listed, fetched whole, and never overwrites a file."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from console import exports
from console.models import MirrorTopic, RestoreRun
from linkctl.cli import PROGRAM
from linkengine.domain.states import MirrorState
from tests.console.api.cast import NOW, Boundary, Rest
from tests.linkctl.conftest import Run, read_json

ON = ("--link", "from-source")
FILE = "orders-1.jsonl.gz"


@pytest.fixture
def restore(make_mirror: Any, settings: Any, tmp_path: Path) -> RestoreRun:
    """A restore that has set two records aside, and one before it that had nothing to do."""
    settings.EXPORT_DIR = str(tmp_path / "exports")
    mirror = make_mirror("orders")
    with exports.writing(FILE) as sink:
        sink(b"{}\n{}\n")
    asked = {"mirror": mirror, "requested_by": "owner", "requested_at": NOW}
    RestoreRun.objects.create(**asked, in_place=True)
    written = sink.written
    kept = {"export_name": FILE, "export_records": 2, "export_sha256": written.sha256, "export_bytes": written.size_bytes}
    points = [{"partition": 0, "start": 0, "end": 12, "common": 10, "records": 2}]
    return RestoreRun.objects.create(**asked, points=points, agreed_at=NOW, exported_at=NOW, **kept)


def test_restores_are_listed_with_what_they_set_aside(run: Run, restore: RestoreRun) -> None:
    table = run("mirror", "restore", "list", "orders", *ON).stdout.splitlines()
    found = read_json(run("mirror", "restore", "list", "orders", *ON, "--json"))["data"]

    assert table[0].split() == ["ID", "BY", "AT", "OUTCOME", "TRUNCATED", "SET", "ASIDE", "BYTES", "FILE"]
    assert [line.split()[0] for line in table[1:]] == [str(one["id"]) for one in found]
    assert any("records set aside" in line and line.endswith(FILE) for line in table)
    assert any("nothing diverged" in line for line in table)


def test_a_file_is_fetched_whole_and_the_way_back_is_told(run: Run, restore: RestoreRun, tmp_path: Path) -> None:
    result = run("mirror", "restore", "download", "orders", str(restore.pk), *ON)

    assert result.exit_code == 0, result.output
    assert gzip.decompress((tmp_path / FILE).read_bytes()) == b"{}\n{}\n"
    assert restore.export_sha256 in result.stdout
    replay = f"python -m linkengine.replay {FILE} --properties client.properties --topic orders-recovered"
    assert replay in result.stdout


def test_a_file_that_is_here_is_not_overwritten_and_another_place_can_be_named(
    run: Run, restore: RestoreRun, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_text("mine")

    refused = run("mirror", "restore", "download", "orders", str(restore.pk), *ON)
    taken = run("mirror", "restore", "download", "orders", str(restore.pk), *ON, "--to", "other.gz")

    assert (refused.exit_code, taken.exit_code) == (2, 0)
    assert (tmp_path / FILE).read_text() == "mine"
    assert (tmp_path / "other.gz").exists()


def test_a_file_that_arrives_damaged_leaves_nothing_behind(run: Run, restore: RestoreRun, tmp_path: Path) -> None:
    RestoreRun.objects.filter(pk=restore.pk).update(export_sha256="0" * 64)

    result = run("mirror", "restore", "download", "orders", str(restore.pk), *ON)

    assert result.exit_code == 5
    assert "Fetch it again" in result.output
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == []


def test_what_cannot_be_fetched_says_why(run: Run, restore: RestoreRun, reader: Rest) -> None:
    asked = ("mirror", "restore", "download", "orders")
    RestoreRun.objects.exclude(pk=restore.pk).update(export_name="")
    empty = RestoreRun.objects.exclude(pk=restore.pk).get().pk

    assert run(*asked, "999", *ON).exit_code == 3
    assert run(*asked, str(empty), *ON).exit_code == 3
    assert run(*asked, str(restore.pk), *ON, as_=reader).exit_code == 4
    assert run(*asked, str(restore.pk), *ON, "--to", "no/such/folder/x.gz").exit_code == 2


def test_the_numbers_of_restores_are_completed(run: Run, restore: RestoreRun) -> None:
    words = (PROGRAM, "mirror", "restore", "download", *ON, "orders", str(restore.pk)[0])
    line = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}

    assert f"plain,{restore.pk}" in run(_LINKCTL_COMPLETE="bash_complete", **line).stdout.split()


def test_a_failed_mirror_is_let_go_on(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")
    assert run("mirror", "recover", "orders", *ON).exit_code == 1  # it is active
    MirrorTopic.objects.update(state=MirrorState.FAILED, error_code="AUTHORIZATION_ERROR")

    assert "dry run" in run("mirror", "recover", "orders", *ON, "--dry-run").stdout
    assert MirrorTopic.objects.get().state == MirrorState.FAILED
    assert run("mirror", "recover", "orders", *ON).exit_code == 0
    assert MirrorTopic.objects.get().state != MirrorState.FAILED
