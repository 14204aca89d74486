"""The key of stored credentials is rotated to its end: everything gets the newest key, and the former one is not needed."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet, InvalidToken
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.backends.utils import CursorWrapper

from console.management.commands import reencrypt_credentials
from console.models import Cluster, ClusterLink
from tests.console.conftest import SOURCE_PROPERTIES

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture(autouse=True)
def old_key(settings: Any) -> None:
    settings.CREDENTIALS_KEYS = [OLD]


def reencrypt(*words: str) -> str:
    output = StringIO()
    call_command("reencrypt_credentials", *words, stdout=output)
    return output.getvalue()


def test_everything_gets_the_newest_key_while_a_second_run_finds_nothing_to_do(
    link: ClusterLink, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reencrypt_credentials, "BATCH", 1)  # more rows than one batch
    settings.CREDENTIALS_KEYS = [NEW, OLD]
    with pytest.raises(CommandError, match="3 stored credentials still need another key"):
        reencrypt("--check")

    told = reencrypt()

    assert "Cluster.properties: 2 rewritten, 0 had the newest key, 0 unreadable\n" in told
    assert "ClusterLink.properties: 1 rewritten, 0 had the newest key, 0 unreadable\n" in told
    settings.CREDENTIALS_KEYS = [NEW]
    assert ClusterLink.objects.get().properties == SOURCE_PROPERTIES
    assert {one.name: one.properties["bootstrap.servers"] for one in Cluster.objects.all()} == {
        "Source": "source.test:9092",
        "Destination": "destination.test:9092",
    }
    assert "Cluster.properties: 0 rewritten, 2 had the newest key" in reencrypt()
    assert "All stored credentials have the newest key" in reencrypt("--check")
    settings.CREDENTIALS_KEYS = [OLD]
    with pytest.raises(InvalidToken):
        ClusterLink.objects.get()


def test_what_somebody_saves_meanwhile_is_kept_and_gets_the_newest_key_too(link: ClusterLink, settings: Any) -> None:
    saved: list[bool] = []

    def save_meanwhile(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("UPDATE") and "console_clusterlink" in sql and not saved:
            saved.append(True)
            settings.CREDENTIALS_KEYS = [OLD]  # a process that was not restarted yet
            ClusterLink.objects.update(properties={"bootstrap.servers": "changed:9092"})
            settings.CREDENTIALS_KEYS = [NEW, OLD]
        return execute(sql, *rest)

    settings.CREDENTIALS_KEYS = [NEW, OLD]
    with connection.execute_wrapper(save_meanwhile):
        told = reencrypt()

    assert "ClusterLink.properties: 1 rewritten, 0 had the newest key, 0 unreadable\n" in told
    settings.CREDENTIALS_KEYS = [NEW]
    assert ClusterLink.objects.get().properties == {"bootstrap.servers": "changed:9092"}


def test_what_no_key_reads_is_counted_left_alone_and_no_success(link: ClusterLink, settings: Any) -> None:
    before = stored(link)
    settings.CREDENTIALS_KEYS = [NEW]

    with pytest.raises(CommandError, match=r"3 stored credentials still need another key.*add it at the end"):
        reencrypt()

    assert stored(link) == before


def stored(link: ClusterLink) -> str:
    cursor: CursorWrapper
    with connection.cursor() as cursor:
        cursor.execute("SELECT properties FROM console_clusterlink WHERE id = %s", [link.pk])
        row: Any = cursor.fetchone()
    return str(row[0])
