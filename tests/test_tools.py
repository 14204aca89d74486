"""The scripts behind `make`: missing tools, hashes of Java parts, digests of images, audit and bill of materials."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from devcluster.browser import browser_path
from devcluster.ports import LOOPBACK
from scripts import audit, check_parts, ensure_programs, image_digests, sbom
from scripts.check_tools import installed_java, java_of, lacking


@pytest.mark.parametrize(
    ("told", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_the_release_of_java_is_read(told: str, release: int | None) -> None:
    assert java_of(told) == release


@pytest.mark.network
def test_this_machine_has_all_required_tools() -> None:
    assert lacking(python=(3, 11), java=installed_java(), maven=True) == []


@pytest.mark.parametrize(
    ("python", "java", "maven", "words"),
    [
        ((3, 10), 17, True, ["Python", "this is 3.10"]),
        ((3, 13), 11, True, ["Java", "this is 11"]),
        ((3, 12), None, True, ["Java", "there is none"]),
        ((3, 12), 21, False, ["Maven"]),
    ],
)
def test_missing_tools_are_named(python: tuple[int, int], java: int | None, maven: bool, words: list[str]) -> None:
    (line,) = lacking(python=python, java=java, maven=maven)
    assert all(word in line for word in words)


def test_gettext_is_missing_if_only_its_base_package_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"gettext", "redis-server"}  # gettext-base has the program gettext, but not msgfmt
    monkeypatch.setattr(shutil, "which", lambda name: name if name in installed else None)

    assert [ensure_programs.present(package) for package in ("redis-server", "gettext", "postfix")] == [True, False, False]


@pytest.mark.parametrize("program", ["chromium-headless-shell", "chromium"])
def test_each_of_two_browsers_is_enough(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == program else None)

    assert ensure_programs.present("chromium-headless-shell")
    assert browser_path() == f"/usr/bin/{program}"


def test_missing_browser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(RuntimeError, match="chromium-headless-shell or chromium"):
        browser_path()


def test_a_java_part_that_is_changed_missing_or_unknown_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    folder.mkdir()
    for name in ("a.jar", "b.jar"):
        (folder / name).write_text(name)
    recorded = check_parts.hashes("spark", tmp_path)
    (folder / "a.jar").write_text("changed")
    (folder / "b.jar").rename(folder / "c.jar")

    found = check_parts.mistakes(check_parts.hashes("spark", tmp_path), recorded)

    assert [line.split()[0] for line in found] == ["spark/b.jar", "spark/c.jar", "spark/a.jar"]


def test_a_part_that_is_being_installed_is_checked_before_it_replaces_the_old_one(tmp_path: Path) -> None:
    for folder in ("spark", "spark.new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jar").write_text(folder)

    new = check_parts.hashes("spark", tmp_path)

    (tmp_path / "spark.new" / "a.jar").unlink()
    (tmp_path / "spark.new").rmdir()
    assert new != check_parts.hashes("spark", tmp_path)


IMAGES = {
    "Dockerfile": "FROM maven:3.9 AS parts\nFROM python:3.11@sha256:" + "a" * 64 + "\n",
    "docker-compose.yml": "services:\n  a:\n    image: clusterlink:0.1.0\n  b:\n    image: apache/kafka:4.3.1\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for file, text in IMAGES.items():
        (tmp_path / file).write_text(text)
    return tmp_path


def test_images_without_a_digest_are_named(project: Path) -> None:
    assert image_digests.without_digest(project) == ["Dockerfile: maven:3.9", "docker-compose.yml: apache/kafka:4.3.1"]


@pytest.mark.network
@pytest.mark.parametrize(("response", "status"), [("sha256:" + "b" * 64, 0), ("no such image", 1)])
def test_digests_are_written_if_docker_resolves_all_of_them(
    project: Path, response: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = project / "docker"
    docker.write_text(f"#!/bin/sh\necho {response}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(project), prepend=":")

    assert image_digests.main(project) == status

    texts = "".join((project / file).read_text() for file in IMAGES)
    assert texts.count(response) == (3 if status == 0 else 0)
    assert (texts == "".join(IMAGES.values())) is (status == 1)
    assert "image: clusterlink:0.1.0\n" in texts


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    file = tmp_path / "requirements.txt"
    file.write_text(f"left==1.0 --hash=sha256:{'0' * 64}\nright==2.0 --hash=sha256:{'0' * 64}\n")
    return file


class _Osv(BaseHTTPRequestHandler):
    """A database with one vulnerability, of the package ``left``."""

    def do_POST(self) -> None:
        requested = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        event = [{"introduced": "0"}, {"fixed": "1.1"}]
        affected = [{"package": {"name": "left", "ecosystem": "PyPI"}, "ranges": [{"type": "ECOSYSTEM", "events": event}]}]
        known = {
            "id": "PYSEC-1",
            "aliases": [],
            "details": "bad",
            "modified": "2024-01-01T00:00:00Z",
            "affected": affected,
        }
        body = json.dumps({"vulns": [known]} if requested["package"]["name"] == "left" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def osv() -> Iterator[str]:
    with ThreadingHTTPServer((LOOPBACK, 0), _Osv) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_port}/v1/query"
        server.shutdown()


def test_the_audit_names_vulnerable_packages_and_the_release_with_the_fix(requirements: Path, osv: str) -> None:
    found = audit.vulnerabilities(requirements, ["-s", "osv", "--osv-url", osv])

    assert found == ["left 1.0: PYSEC-1, fixed in 1.1"]


@pytest.mark.network
def test_an_audit_without_its_database_is_no_success(requirements: Path) -> None:
    with pytest.raises(audit.UnreachableError):
        audit.vulnerabilities(requirements, ["-s", "osv", "--osv-url", f"http://{LOOPBACK}:1/v1/query", "--timeout", "2"])


@pytest.mark.parametrize(
    ("found", "unpinned", "status"),
    [([], [], 0), (["left 1.0"], [], 1), (None, [], 2), (None, ["maven:3.9"], 1), ([], ["maven:3.9"], 1)],
)
def test_the_status_of_the_audit_separates_findings_from_an_unreachable_database(
    found: list[str] | None,
    unpinned: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def response(*_: object) -> list[str]:
        if found is None:
            raise audit.UnreachableError("no route")
        return found

    monkeypatch.setattr(audit, "vulnerabilities", response)
    monkeypatch.setattr(image_digests, "without_digest", lambda: unpinned)

    assert audit.main([]) == status
    assert ("could not be reached" in capsys.readouterr().out) is (found is None)


def test_a_jar_is_described_by_its_own_coordinates(tmp_path: Path) -> None:
    own = "groupId=org.lib\nartifactId=lib\nversion=2.1\n"
    for name, text in (("lib-2.1.jar", own), ("odd_2.13-3.0.jar", "")):
        with ZipFile(tmp_path / name, "w") as jar:
            jar.writestr("META-INF/maven/org.other/other/pom.properties", "groupId=org.other\nartifactId=other\nversion=9\n")
            jar.writestr("META-INF/maven/x/y/pom.properties", text)

    described = [sbom.jar_component(tmp_path / name, role="a part")["purl"] for name in ("lib-2.1.jar", "odd_2.13-3.0.jar")]

    assert described == ["pkg:maven/org.lib/lib@2.1", "pkg:generic/odd_2.13@3.0"]


@pytest.mark.network
def test_the_bill_of_materials_lists_python_packages_jars_and_web_assets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sbom, "TARGET", tmp_path / "sbom.json")
    monkeypatch.setattr(sbom, "find_spec", lambda _: None)  # pyspark's 280 jars take half a minute
    assert sbom.main() == 0

    document = json.loads((tmp_path / "sbom.json").read_text())
    version = SchemaVersion[f"V{document['specVersion'].replace('.', '_')}"]
    purls = {component["purl"] for component in document["components"]}
    assert JsonStrictValidator(version).validate_str(json.dumps(document)) is None
    assert any(purl.startswith("pkg:pypi/django@5") for purl in purls)
    assert any("kafka-clients@3.9.1" in purl for purl in purls)
    assert any("bootstrap" in purl for purl in purls)
