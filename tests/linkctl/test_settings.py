"""Settings: options take precedence over environment variables, and these over the file; missing settings are named."""

import json
from pathlib import Path

import pytest

from linkctl.client import Exit, LinkctlError, read_settings

VARIABLES = {"LINKCTL_URL": "http://env", "LINKCTL_API_KEY": "KEY", "LINKCTL_API_SECRET": "hidden", "LINKCTL_CLUSTER": "env"}
NOTHING: dict[str, str | None] = {"url": None, "cluster": None}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_options_take_precedence_over_the_environment_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"url": "http://file", "cluster": "file", "token": "of the file"}))

    settings = read_settings(options={"url": "http://option", "cluster": None}, file=file, environment=VARIABLES)

    assert (settings.url, settings.cluster, settings.api_key) == ("http://option", "env", "KEY")
    assert settings.token == "of the file"


def test_the_file_of_a_running_demo_suffices(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    demo = {"base_url": "http://demo", "api_key": "A", "api_secret": "B", "clusters": {"destination": {"id": "here"}}}
    (tmp_path / "var/demo.json").write_text(json.dumps(demo))

    settings = read_settings(options=NOTHING, file=None, environment={})

    assert (settings.url, settings.api_key, settings.cluster) == ("http://demo", "A", "here")


def test_the_users_file_is_the_last_default(tmp_path: Path) -> None:
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config/linkctl.json").write_text('{"url": "http://user", "token": "T"}')

    assert read_settings(options=NOTHING, file=None, environment={}).url == "http://user"


@pytest.mark.parametrize(
    ("variables", "named"),
    [({}, "LINKCTL_URL"), ({"LINKCTL_URL": "http://a"}, "LINKCTL_API_KEY")],
)
def test_missing_settings_are_named(variables: dict[str, str], named: str) -> None:
    with pytest.raises(LinkctlError, match=named) as failure:
        read_settings(options=NOTHING, file=None, environment=variables)

    assert failure.value.exit_code == Exit.USAGE


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_file_without_a_json_object_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "own.json"
    file.write_text(text)

    with pytest.raises(LinkctlError, match=r"own\.json"):
        read_settings(options=NOTHING, file=file, environment=VARIABLES)


def test_the_repr_of_settings_has_no_secrets() -> None:
    assert "hidden" not in repr(read_settings(options=NOTHING, file=None, environment=VARIABLES))
