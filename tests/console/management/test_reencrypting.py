"""Rotation of the credentials key: all stored credentials get the newest key, and the previous key is no longer needed."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.backends.utils import CursorWrapper

from console.management.commands import reencrypt_credentials
from console.models import Cluster, ClusterLink
from linkengine.domain.errors import LinkEngineError
from tests.console.conftest import SOURCE_PROPERTIES

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture(autouse=True)
def old_key(settings: Any) -> None:
    settings.CREDENTIALS_KEYS = [OLD]


def reencrypt(*words: str) -> str:
    output = StringIO()
    call_command("reencrypt_credentials", *words, stdout=output)
    return output.getvalue()


def test_all_credentials_get_the_newest_key_and_a_second_run_changes_nothing(
    link: ClusterLink, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reencrypt_credentials, "BATCH", 1)  # more rows than a batch
    settings.CREDENTIALS_KEYS = [NEW, OLD]
    with pytest.raises(CommandError, match="3 stored credentials still need another key"):
        reencrypt("--check")

    output = reencrypt()

    assert "Cluster.properties: 2 rewritten, 0 had the newest key, 0 unreadable\n" in output
    assert "ClusterLink.properties: 1 rewritten, 0 had the newest key, 0 unreadable\n" in output
    settings.CREDENTIALS_KEYS = [NEW]
    assert ClusterLink.objects.get().properties == SOURCE_PROPERTIES
    assert {cluster.name: cluster.properties["bootstrap.servers"] for cluster in Cluster.objects.all()} == {
        "Source": "source.test:9092",
        "Destination": "destination.test:9092",
    }
    assert "Cluster.properties: 0 rewritten, 2 had the newest key" in reencrypt()
    assert "All stored credentials have the newest key" in reencrypt("--check")
    settings.CREDENTIALS_KEYS = [OLD]
    with pytest.raises(LinkEngineError, match="cannot be decrypted"):
        dict(ClusterLink.objects.get().properties)


def test_credentials_saved_during_the_run_are_kept_and_get_the_newest_key(link: ClusterLink, settings: Any) -> None:
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
        output = reencrypt()

    assert "ClusterLink.properties: 1 rewritten, 0 had the newest key, 0 unreadable\n" in output
    settings.CREDENTIALS_KEYS = [NEW]
    assert ClusterLink.objects.get().properties == {"bootstrap.servers": "changed:9092"}


def test_unreadable_credentials_are_counted_and_not_changed(link: ClusterLink, settings: Any) -> None:
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
