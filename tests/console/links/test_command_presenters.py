"""The commands that create a link are run as they are printed, with stand-ins for curl and linkctl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.links.command_presenters import LinkCommand, link_commands
from console.links.drafts import DraftValues
from linkctl.commands import config_list
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import properties_of

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIC\n-----END PRIVATE KEY-----\n"
PASSWORD = """it's "quoted" \\ $HOME `id` ü"""
ADDRESS = ClusterAddress(
    bootstrap_servers="far.example:9093,far2.example:9093",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_username='li"nk',
    sasl_password=PASSWORD,
    ssl_ca_pem=CERTIFICATE,
    ssl_certificate_pem=CERTIFICATE,
    ssl_key_pem=KEY,
    ssl_key_password="key $1",
)
FAR = DraftValues(
    other_kind="other",
    other_cluster_id="west",
    own="east",
    name="fresh",
    connection=properties_of(ADDRESS),
    auto_create=True,
    topic_filters='{"topicFilters": [{"name": "$HOME`id`", "patternType": "LITERAL", "filterType": "INCLUDE"}]}',
)
NEAR = DraftValues(other="west", own="east", name="fresh", sync_offsets=True)
VARIABLES = {
    "API_KEY": "key",
    "API_SECRET": "secret",
    "LINKCTL_API_KEY": "key",
    "LINKCTL_API_SECRET": "secret",
    "SASL_PASSWORD": PASSWORD,
    "SSL_KEY_PASSWORD": "key $1",
}
SHELLS = [shell for shell in ("bash", "dash") if shutil.which(shell)]


def commands(values: DraftValues) -> dict[str, LinkCommand]:
    path = "/kafka/v3/clusters/east/links?link_name=fresh"
    found = link_commands(values, base_url="https://links.example", path=path, registered_servers="west.example:9092")
    return {command.key: command for command in found}


def run(text: str, folder: Path, *, shell: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command; stand-ins write their arguments and their standard input to files."""
    for name in ("curl", "linkctl"):
        program = folder / name
        program.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done > words\ncat > input\n')
        program.chmod(0o755)
    (folder / "client-certificate.pem").write_text(CERTIFICATE)
    (folder / "client-key.pem").write_text(KEY)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", **variables}
    return subprocess.run(
        [shell, "-c", text], cwd=folder, env=environment, input="", capture_output=True, text=True, timeout=30, check=False
    )


def words_in(folder: Path) -> list[str]:
    return (folder / "words").read_text().split("\0")[:-1]


def stripped(configs: dict[str, Any]) -> dict[str, Any]:
    """Return configs without the line breaks at the end of PEM texts, which shells remove and nothing needs."""
    return {name: value.rstrip("\n") if isinstance(value, str) else value for name, value in configs.items()}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("values", [FAR, NEAR])
def test_curl_command_sends_the_configs_of_the_draft(tmp_path: Path, values: DraftValues, shell: str) -> None:
    done = run(commands(values)["curl"].text, tmp_path, shell=shell, **VARIABLES)

    assert (done.returncode, done.stderr) == (0, "")
    sent = json.loads((tmp_path / "input").read_text())
    assert sent["source_cluster_id"] == "west"
    assert stripped({row["name"]: row["value"] for row in sent["configs"]}) == stripped(values.configs())
    words = words_in(tmp_path)
    assert words[:5] == ["-u", "key:secret", "-X", "POST", "https://links.example/kafka/v3/clusters/east/links?link_name=fresh"]
    assert not any(PASSWORD in word or "MIIC" in word for word in words)  # other users can see command lines


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("values", [FAR, NEAR])
def test_linkctl_command_sets_the_configs_of_the_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: DraftValues, shell: str
) -> None:
    done = run(commands(values)["linkctl"].text, tmp_path, shell=shell, **VARIABLES)

    assert (done.returncode, done.stderr) == (0, "")
    words = words_in(tmp_path)
    assert words[:6] == ["--url", "https://links.example", "--cluster", "east", "link", "create"]
    assert words[6:8] == ["--source-cluster", "west"]
    assert words[-2:] == ["--", "fresh"]
    assert not any(PASSWORD in word or "MIIC" in word for word in words)
    given = [words[at + 1] for at, word in enumerate(words) if word == "--config"]
    monkeypatch.chdir(tmp_path)  # --config NAME=@FILE
    file = tmp_path / "input" if "--config-file" in words else None
    assert stripped({row["name"]: row["value"] for row in config_list(given, file)}) == stripped(values.configs())


@pytest.mark.parametrize("key", ["curl", "linkctl"])
@pytest.mark.parametrize("shell", SHELLS)
def test_command_ends_with_the_name_of_a_variable_that_is_not_set(tmp_path: Path, key: str, shell: str) -> None:
    missing = {name: value for name, value in VARIABLES.items() if name != "SASL_PASSWORD"}

    done = run(commands(FAR)[key].text, tmp_path, shell=shell, **missing)

    assert done.returncode != 0
    assert "SASL_PASSWORD" in done.stderr
    assert not (tmp_path / "words").exists()


@pytest.mark.parametrize(
    "values", [FAR, NEAR, replace(FAR, connection=properties_of(replace(ADDRESS, sasl_mechanism="PLAIN")))]
)
def test_no_command_contains_a_secret(values: DraftValues) -> None:
    text = "".join(command.text for command in commands(values).values())

    assert "quoted" not in text
    assert "MIIC" not in text
    assert "key $1" not in text


def test_commands_name_what_has_to_be_set() -> None:
    needs = commands(FAR)["curl"].needs

    assert 'SASL_PASSWORD: password of li"nk' in needs
    assert "files client-certificate.pem and client-key.pem in the current folder" in needs


@pytest.mark.parametrize(
    ("values", "option"),
    [
        (replace(NEAR, link_mode="SOURCE", remote_field="destination_cluster_id"), "--destination-cluster west"),
        (replace(NEAR, link_mode="BIDIRECTIONAL", remote_field="remote_cluster_id"), "--remote-cluster west"),
    ],
)
def test_linkctl_command_names_the_other_cluster_by_its_role(values: DraftValues, option: str) -> None:
    assert option in commands(values)["linkctl"].text


def test_cluster_id_that_is_not_known_is_left_out() -> None:
    found = commands(replace(FAR, other_cluster_id=""))

    assert "source_cluster_id" not in found["curl"].text
    assert "--source-cluster" not in found["linkctl"].text
    assert "needs the ID of the source cluster" in found["terraform"].reason


PUBLIC = ClusterAddress(
    bootstrap_servers="far.example:9093,far2.example:9093",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    sasl_username="ABC",
    sasl_password=PASSWORD,
)


def test_terraform_configuration_has_the_configs_without_the_connection() -> None:
    far = commands(replace(FAR, connection=properties_of(PUBLIC)))["terraform"]
    near = commands(NEAR)["terraform"]

    assert 'bootstrap_endpoint = "far.example:9093,far2.example:9093"' in far.text
    assert 'key    = "ABC"' in far.text
    assert r"""secret = replace(replace(var.source_secret, "\\", "\\\\"), "\"", "\\\"")""" in far.text
    assert '"auto.create.mirror.topics.enable" = "true"' in far.text
    assert "sasl.jaas.config" not in far.text
    assert 'bootstrap_endpoint = "west.example:9092"' in near.text
    assert "source_secret" not in near.text


def test_terraform_text_escapes_the_user_name_as_the_login_config_needs_it() -> None:
    """The provider writes the key between quotes into sasl.jaas.config without escaping it."""
    text = commands(replace(FAR, connection=properties_of(replace(PUBLIC, sasl_username='a"\\b'))))["terraform"].text

    key = next(line for line in text.splitlines() if line.strip().startswith("key"))
    assert json.loads(key.partition("= ")[2]) == r"a\"\\b"


def test_terraform_text_escapes_template_sequences() -> None:
    filters = '{"topicFilters": [{"name": "${x}%{y}", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'

    text = commands(replace(NEAR, auto_create=True, topic_filters=filters))["terraform"].text

    assert "$${x}%%{y}" in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (FAR, "supports SASL_SSL with PLAIN"),
        (replace(NEAR, link_mode="BIDIRECTIONAL"), "Only for a link on the destination cluster"),
        (replace(NEAR, connection_mode="INBOUND"), "Only for a link on the destination cluster"),
    ],
)
def test_terraform_is_not_offered_where_the_provider_cannot_do_it(values: DraftValues, words: str) -> None:
    command = commands(values)["terraform"]

    assert command.text == ""
    assert words in command.reason
