"""The addresses that the benchmark of the pages measures exist, show the rows that it creates, and need few queries."""

from __future__ import annotations

import io
import json

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench import pages
from console.models import MirrorTopic, StateTransition

pytestmark = pytest.mark.django_db


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Client, str]:
    """A signed in client and the number of the operation."""
    for mirrors in ("30", "60"):  # as the benchmark does, with fewer rows
        monkeypatch.setattr("sys.stdin", io.StringIO(mirrors))
        exec(pages._SEED, {})
    client = Client()
    name, value, operation = json.loads(capsys.readouterr().out.splitlines()[-1])
    client.cookies[name] = value
    return client, operation


def test_measured_pages_exist_and_need_at_most_ten_queries(site: tuple[Client, str]) -> None:
    client, operation = site
    found = {}
    for path, _ in pages._PAGES:
        with CaptureQueriesContext(connection) as queries:
            found[path] = (client.get(path.format(operation=operation)).status_code, len(queries) <= 10)

    assert found == {path: (200, True) for path, _ in pages._PAGES}
    assert len(dict(pages._PAGES)) == len({what for _, what in pages._PAGES}) == len(pages._PAGES)


def test_measured_pages_show_rows(site: tuple[Client, str]) -> None:
    client, operation = site
    assert MirrorTopic.objects.count() == 60
    assert StateTransition.objects.values("mirror").distinct().count() == 6
    expected = {
        "/clusters/destination/": "link-00",
        "/audit/": "PauseMirrorTopic",
        "/operations/": f"/operations/{operation}/",
        f"/operations/{operation}/": "topic-00000",
        "/links/destination/link-00/groups/": "group-of-topic-00000",
        "/links/destination/link-00/failover/": "topic-00000",
        "/links/destination/link-00/history/events.json?span=1h": "TIMEOUT_ERROR",
        "/links/destination/link-00/history/series.json?span=1h": "topic-00000",
    }

    shown = {path: text in client.get(path).content.decode() for path, text in expected.items()}

    assert shown == dict.fromkeys(expected, True)
