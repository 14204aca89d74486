"""Settings come from environment variables; errors name the variable and never repeat its value."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from pyspark.sql.connect.client.core import DefaultChannelBuilder

from console.config.env import EnvironmentVariables, spark_address

ROOT = Path(__file__).parents[3]


def test_missing_variable_is_named_with_the_file_that_explains_it() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"CLUSTERLINK_X is not set.*\.env\.example"):
        EnvironmentVariables({}).text("CLUSTERLINK_X")


def test_default_is_used_for_an_empty_variable() -> None:
    assert EnvironmentVariables({"X": ""}).text("X", "default") == "default"
    assert EnvironmentVariables({"X": "given"}).text("X", "default") == "given"


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from-file\n")

    assert EnvironmentVariables({"X_FILE": str(file)}).secret("X") == "from-file"
    assert EnvironmentVariables({"X": "direct"}).secret("X") == "direct"
    with pytest.raises(ImproperlyConfigured, match=r"X_FILE names .* cannot be read"):
        EnvironmentVariables({"X_FILE": str(tmp_path / "none")}).secret("X")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("off", False), ("", False), ("No", False)])
def test_flag_accepts_the_usual_words(text: str, value: bool) -> None:
    assert EnvironmentVariables({"X": text}).flag("X") is value


def test_malformed_values_are_refused() -> None:
    environment = EnvironmentVariables({"FLAG": "perhaps", "NUMBER": "many", "URL": "mysql://u:secret@h/d"})

    with pytest.raises(ImproperlyConfigured, match="FLAG must be true or false"):
        environment.flag("FLAG")
    with pytest.raises(ImproperlyConfigured, match="NUMBER must be a whole number"):
        environment.number("NUMBER", 1)
    with pytest.raises(ImproperlyConfigured, match="URL must begin with") as caught:
        environment.database("URL")
    assert "secret" not in str(caught.value)


def test_invalid_key_is_refused_and_not_repeated() -> None:
    good, bad = "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=", "my-secret-password"

    assert EnvironmentVariables({"X": f"{good}, {good}"}).cipher_keys("X") == [good, good]
    with pytest.raises(ImproperlyConfigured, match=r"Key 2 of 2 in X is no Fernet key\..*\.env\.example") as caught:
        EnvironmentVariables({"X": f"{good},{bad}"}).cipher_keys("X")
    assert bad not in str(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(ImproperlyConfigured, match="X names no key"):
        EnvironmentVariables({"X": " ,"}).cipher_keys("X")


def test_lists_are_separated_by_commas() -> None:
    assert EnvironmentVariables({"X": "a, b,,c"}).words("X") == ["a", "b", "c"]


@pytest.mark.parametrize(("url", "name"), [("sqlite:///var/db.sqlite3", "var/db.sqlite3"), ("sqlite:////tmp/db", "/tmp/db")])
def test_sqlite_is_used_with_a_write_ahead_log_and_immediate_locks(url: str, name: str) -> None:
    settings = EnvironmentVariables({"X": url}).database("X")

    assert settings["NAME"] == name
    assert settings["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in settings["OPTIONS"]["init_command"]


def test_postgres_urls_are_read_with_all_their_parts() -> None:
    settings = EnvironmentVariables({"X": "postgres://us%40er:p%2Fw@db.test:5433/links?sslmode=require&host=/run/pg"}).database(
        "X"
    )

    assert (settings["USER"], settings["PASSWORD"], settings["PORT"]) == ("us@er", "p/w", "5433")
    assert (settings["NAME"], settings["HOST"]) == ("links", "/run/pg")
    assert settings["OPTIONS"]["sslmode"] == "require"


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_secret_file_without_text_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)

    with pytest.raises(ImproperlyConfigured, match=r"X_FILE names .*(empty|not a text file)"):
        EnvironmentVariables({"X_FILE": str(tmp_path / "secret")}).secret("X")


def test_several_postgres_hosts_are_passed_to_libpq() -> None:
    url = "postgres://u:p@db1:5433,[::1],db3/links?target_session_attrs=read-write&connect_timeout=7"

    settings = EnvironmentVariables({"X": url}).database("X")

    assert (settings["HOST"], settings["PORT"]) == ("db1,::1,db3", "5433,5432,5432")
    assert settings["OPTIONS"]["target_session_attrs"] == "read-write"
    assert settings["OPTIONS"]["connect_timeout"] == "7"


@pytest.mark.parametrize("hosts", ["db1,", ",db2", "db1:port", "db1:70000,db2", ":5432"])
def test_malformed_hosts_are_refused(hosts: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"X cannot be read: .*\.env\.example") as caught:
        EnvironmentVariables({"X": f"postgres://u:secret@{hosts}/links"}).database("X")
    assert "secret" not in str(caught.value)


def test_password_variable_is_used_unless_the_address_has_a_password(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("p@ss/word:1\n")
    variables = {"P_FILE": str(tmp_path / "file")}

    assert EnvironmentVariables({"X": "postgres://u@h/d", **variables}).database("X", "P")["PASSWORD"] == "p@ss/word:1"
    assert EnvironmentVariables({"X": "postgres://u:other@h/d", **variables}).database("X", "P")["PASSWORD"] == "other"
    assert EnvironmentVariables({"X": "redis://h:1/0", **variables}).redis("X", "P") == "redis://:p%40ss%2Fword%3A1@h:1/0"
    assert EnvironmentVariables({"X": "redis://:other@h/0", **variables}).redis("X", "P") == "redis://:other@h/0"
    assert EnvironmentVariables({"X": "redis://h:1/0"}).redis("X", "P") == "redis://h:1/0"
    expected = "redis+sentinel://:p%40ss%2Fword%3A1@h:1,h2/main/0"
    assert EnvironmentVariables({"X": "redis+sentinel://h:1,h2/main/0", **variables}).redis("X", "P") == expected


@pytest.mark.parametrize("rest", ["h:1", "h:1/", "h:1/main/x", "h:port/main", ",h/main", "h/main?socket_timeout=soon"])
def test_malformed_sentinel_address_is_refused(rest: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"X cannot be read: .*\.env\.example") as caught:
        EnvironmentVariables({"X": f"redis+sentinel://:secret@{rest}"}).redis("X")
    assert "secret" not in str(caught.value)


def test_every_variable_that_is_read_is_explained() -> None:
    read = set(re.findall(r'"(CLUSTERLINK_\w+)"', (ROOT / "console/settings.py").read_text()))
    explained = set(re.findall(r"^(CLUSTERLINK_\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))

    assert read == explained


def test_networks_are_parsed_and_the_invalid_entry_is_named() -> None:
    assert EnvironmentVariables({"X": "10.0.0.0/8, ::1,192.0.2.5"}).networks("X") == ("10.0.0.0/8", "::1", "192.0.2.5")
    assert EnvironmentVariables({}).networks("X", "") == ()
    for entry in ("proxy.example.com", "10.0.0.1/8", "*"):
        with pytest.raises(ImproperlyConfigured, match=r"Entry 2 of 2 in X is not an IP network"):
            EnvironmentVariables({"X": f"10.0.0.0/8,{entry}"}).networks("X")


@pytest.mark.parametrize(("proxies", "starts"), [("", False), ("10.0.0.1", True)])
def test_tls_of_a_proxy_needs_the_proxy_to_be_trusted(proxies: str, starts: bool) -> None:
    environment = {**os.environ, "CLUSTERLINK_BEHIND_TLS": "true", "CLUSTERLINK_TRUSTED_PROXIES": proxies}

    done = subprocess.run(
        [sys.executable, "-c", "import console.settings"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode == 0) is starts
    assert starts or "CLUSTERLINK_BEHIND_TLS needs the proxy's address in CLUSTERLINK_TRUSTED_PROXIES" in done.stderr


@pytest.mark.parametrize(
    ("url", "token", "address"),
    [
        ("sc://spark:15002", "", "sc://spark:15002"),
        ("sc://spark:15002", "a-token", "sc://spark:15002/;authorization=Bearer%20a-token"),
        ("sc://spark:15002/", "a=b;c d", "sc://spark:15002/;authorization=Bearer%20a%3Db%3Bc%20d"),
        ("sc://spark:15002/;user_id=me", "a-token", "sc://spark:15002/;user_id=me;authorization=Bearer%20a-token"),
        ("sc://spark:443/;use_ssl=true", "a-token", "sc://spark:443/;use_ssl=true;token=a-token"),
    ],
)
def test_spark_token_is_added_as_pyspark_sends_it(url: str, token: str, address: str) -> None:
    assert spark_address(url, token) == address
    assert dict(DefaultChannelBuilder(address).metadata()).get("authorization") == (
        f"Bearer {token}" if "authorization" in address else None
    )
