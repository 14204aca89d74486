"""The program as a shell runs it: module, exit codes, completion."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from linkctl.cli import PROGRAM, program
from linkctl.client import Exit
from tests.linkctl.conftest import Run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(run: Run, shell: str) -> None:
    script = run("completion", shell).stdout

    assert "_LINKCTL_COMPLETE" in script
    assert script.count("linkctl") >= 2


def test_commands_are_completed() -> None:
    completer = ShellComplete(program, {}, PROGRAM, "_LINKCTL_COMPLETE")

    assert {completion.value for completion in completer.get_completions(["mirror"], "re")} == {
        "record",
        "recover",
        "reparent",
        "restore",
        "resume",
        "reverse-and-start",
        "reverse-and-pause",
    }


def test_names_of_links_and_topics_are_completed(run: Run, make_mirror: Any) -> None:
    make_mirror("orders")
    make_mirror("payments")

    def words(*arguments: str) -> set[str]:
        line = {"COMP_WORDS": " ".join((PROGRAM, *arguments)), "COMP_CWORD": str(len(arguments))}
        return set(run(_LINKCTL_COMPLETE="bash_complete", **line).stdout.split())

    assert words("link", "describe", "fr") == {"plain,from-source"}
    assert words("mirror", "pause", "--link", "from-source", "o") == {"plain,orders"}


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    done = run_program(tmp_path)

    assert done.returncode == Exit.USAGE
    assert "LINKCTL_URL" in done.stderr


def test_an_unreachable_service_is_reported_without_secrets(tmp_path: Path) -> None:
    variables = {"LINKCTL_URL": "http://127.0.0.1:1", "LINKCTL_TOKEN": "secret-token", "LINKCTL_CLUSTER": "x"}

    done = run_program(tmp_path, **variables)

    assert done.returncode == Exit.UNAVAILABLE
    assert "does not respond" in done.stderr
    assert "secret-token" not in done.stderr


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("links.example.com", "does not begin with https:// or http://"),
        ("links.example.com:8443", "does not begin with https:// or http://"),
        ("ftp://links.example.com", "does not begin with https:// or http://"),
        ("http://", "has no host"),
        ("http://links.example.com:port", "is not a URL"),
        ("http://links.example.com:99999", "has no host or an invalid port"),
    ],
)
def test_an_invalid_address_is_a_usage_error(tmp_path: Path, url: str, why: str) -> None:
    done = run_program(tmp_path, LINKCTL_URL=url, LINKCTL_TOKEN="secret-token", LINKCTL_CLUSTER="x")

    assert done.returncode == Exit.USAGE
    assert f"The address of the service {why}" in done.stderr
    assert "LINKCTL_URL" in done.stderr
    assert "Traceback" not in done.stderr


def run_program(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the module in its own process, in an empty folder with an empty home directory."""
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(folder), **variables}
    command = [sys.executable, "-m", "linkctl", "link", "list"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
