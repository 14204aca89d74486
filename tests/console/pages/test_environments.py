"""The page of a cluster."""

from __future__ import annotations

import pytest
from django.test import Client

from console.clusters import pages as cluster_pages
from tests.browser.page_data import WEST, PageData


def test_cluster_page_shows_the_number_of_unlisted_topics(
    page_data: PageData, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/clusters/{WEST}/"
    assert "more topics" not in admin.get(address).content.decode()

    monkeypatch.setattr(cluster_pages, "TOPICS_SHOWN", 1)

    assert "2 more topics</a>" in admin.get(address).content.decode()
