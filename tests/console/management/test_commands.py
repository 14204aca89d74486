"""Management commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from console.access.queries import valid_key
from console.errors import ConflictError, NotFoundError, UnavailableError
from console.management.commands import render_docs
from console.management.commands.render_docs import (
    BEGIN,
    CODES,
    CONSOLE,
    END,
    INDEX,
    PAGE_END,
    PLACE,
    STATES,
    console_codes,
    states_document,
    with_table,
)
from console.models import Cluster, MirrorTopic, VerifyRun
from console.models.mirrors import KEPT
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import TRANSITIONS
from tests.console.conftest import Engine

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def raised() -> dict[str, Any]:
    """The codes of the console's own errors, found once: every module of the console is parsed for them."""
    return console_codes(ROOT / "console")


def run(*words: str) -> Any:
    output = StringIO()
    call_command(*words, stdout=output)
    return json.loads(output.getvalue())


@pytest.mark.django_db
def test_created_api_key_works() -> None:
    user = User.objects.create_user("root")

    made = run("create_api_key", "root")

    found = valid_key(key=made["api_key"], secret=made["api_secret"], now=timezone.now())
    assert found is not None
    assert found.user == user
    assert valid_key(key=made["api_key"], secret="wrong", now=timezone.now()) is None
    with pytest.raises(CommandError, match="no user 'nobody'"):
        run("create_api_key", "nobody")


@pytest.mark.django_db
def test_a_cluster_is_registered_from_a_properties_file(tmp_path: Path, engine: Engine) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nbootstrap.servers = one:9092\n\nsecurity.protocol=PLAINTEXT\n")

    assert run("register_cluster", "west", "--properties", str(file)) == {"name": "west", "cluster_id": "source-id"}

    cluster = Cluster.objects.get()
    assert cluster.properties == {"bootstrap.servers": "one:9092", "security.protocol": "PLAINTEXT"}
    with pytest.raises(CommandError, match="already registered"):
        run("register_cluster", "west", "--properties", str(file))


@pytest.mark.django_db
def test_unsupported_security_in_a_properties_file_is_refused_by_name(tmp_path: Path, engine: Engine) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=one:9092\nsecurity.protocol=SSL\nssl.keystore.location=/etc/key.jks\n")

    with pytest.raises(CommandError, match=r"ssl\.keystore\.location is not supported"):
        run("register_cluster", "west", "--properties", str(file))

    assert not Cluster.objects.exists()
    assert not engine.calls


def test_mirror_is_verified_and_unknown_mirrors_are_refused(mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(self: VerifyRun, **_: Any) -> None:
        self.status, self.records_compared, self.differences = "EQUAL", 10, 0

    monkeypatch.setattr(VerifyRun, "refresh_from_db", finish)

    assert run("verify_mirror", "destination-id", "west-to-east", "orders")["records_compared"] == 10
    with pytest.raises(CommandError, match="not a mirror topic"):
        run("verify_mirror", "destination-id", "west-to-east", "none")


def test_states_document_is_up_to_date() -> None:
    assert (ROOT / STATES).read_text() == states_document()


def test_table_of_error_codes_is_up_to_date_and_complete() -> None:
    call_command("render_docs", "--check")

    text = (ROOT / PLACE / INDEX).read_text()
    assert [code for code in CODES if f"| [`{code}`]({code}.md) | " not in text] == []
    assert set(CODES) == {*ErrorCode, *KEPT} - {ErrorCode.NO_ERROR}
    assert with_table(f"a{BEGIN}not ours\n{END}b", ["x\n"], name=INDEX) == f"a{BEGIN}x\n{END}b"
    with pytest.raises(CommandError, match="has lost the comments"):
        with_table("no table", ["x\n"], name=INDEX)


def test_table_of_the_consoles_error_codes_has_each_code_with_its_status(raised: dict[str, Any]) -> None:
    text = (ROOT / PLACE / CONSOLE).read_text()

    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert {code for code, *_ in rows} == set(raised)
    assert len(rows) == len(raised)
    status = {code: status for code, status, *_ in rows}
    assert status["SECRET_NEEDED"] == "400, `error_code` 40002"
    assert status["TOPIC_NOT_FOUND"] == "404, `error_code` 40401"
    assert status["BROKER_TIMEOUT"] == "500, `error_code` 50003"
    assert status["WORKER_UNAVAILABLE"] == "503, `error_code` 50302"
    assert status["COPY_ENGINE_UNAVAILABLE"] == "none, only shown on pages"
    assert not set(raised) & set(CODES)


RAISES = """
A, B = "FIRST_CODE", "SECOND_CODE"
raise ConflictError("no", code="GIVEN_CODE")
raise NotFoundError("no", code=A)
raise NotFoundError("no", code=B)
raise UnavailableError("no", code=B)
raise ConflictError("no")
raise ConflictError("no", code=ErrorCode.SIDES_DIVERGED)
raise ConflictError("no", code="SIDES_DIVERGED")
raise BrokerFailedError("no", code=error.code)
error_note("NOTED_CODE" if problem else "", problem)
"""


def test_codes_of_the_console_are_found_in_its_modules(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(RAISES)

    found = console_codes(tmp_path)

    assert found == {
        "GIVEN_CODE": {ConflictError},
        "FIRST_CODE": {NotFoundError},
        "SECOND_CODE": {NotFoundError, UnavailableError},
        "CONFLICT": {ConflictError},
        "NOTED_CODE": set(),
    }
    (tmp_path / "module.py").write_text('raise ConflictError("no", code=computed())')
    with pytest.raises(CommandError, match=r"module\.py:1: the code of this error is not a constant"):
        console_codes(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda codes: codes | {"NEW_CODE": {ConflictError}}, "does not describe these codes of the console: NEW_CODE"),
        (lambda codes: {code: codes[code] for code in codes if code != "LINK_IN_USE"}, "does not have: LINK_IN_USE"),
    ],
    ids=["undescribed", "obsolete"],
)
def test_check_fails_if_codes_and_descriptions_of_the_console_differ(
    monkeypatch: pytest.MonkeyPatch,
    raised: dict[str, Any],
    change: Callable[[dict[str, Any]], dict[str, Any]],
    message: str,
) -> None:
    monkeypatch.setattr(render_docs, "console_codes", lambda _folder: change(raised))

    with pytest.raises(CommandError, match=message):
        call_command("render_docs", "--check")


def test_manual_text_on_the_page_of_an_error_code_is_kept(
    settings: Any, tmp_path: Path, raised: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render_docs, "console_codes", lambda _folder: raised)
    settings.BASE_DIR = tmp_path
    folder = tmp_path / PLACE
    folder.mkdir(parents=True)
    for name in (INDEX, CONSOLE):
        (folder / name).write_text(BEGIN + END)
    (folder / "CORRUPT_RECORDS.md").write_text("## In detail\n")
    with pytest.raises(CommandError, match="differ from the code"):
        call_command("render_docs", "--check")

    call_command("render_docs")
    call_command("render_docs")
    call_command("render_docs", "--check")

    text = (folder / "CORRUPT_RECORDS.md").read_text()
    assert text.count("## In detail\n") == text.count(PAGE_END) == 1
    assert {path.stem for path in folder.glob("*.md")} == {*CODES, "README", "console-errors"}
    (folder / "NO_SUCH_CODE.md").touch()
    with pytest.raises(CommandError, match=r"NO_SUCH_CODE\.md\. Delete them"):
        call_command("render_docs", "--check")


def test_states_document_has_every_transition() -> None:
    text = states_document()
    for state, row in TRANSITIONS.items():
        assert all(f"{event}" in text for event in row)
        assert f"| {state} |" in text
