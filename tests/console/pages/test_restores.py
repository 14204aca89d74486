"""Restores on the pages: the confirmation shows the effects, and exported records can be downloaded."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.mirrors import diverged_exports
from console.models import ClusterLink, MirrorTopic, RestoreRun
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData
from tests.console.pages.conftest import Queue
from tests.console.pages.list_pages import walk
from tests.console.pages.list_rows import add_restores

NAME = "flights"


@pytest.fixture
def back(page_data: PageData) -> ClusterLink:
    """Return the paired link of the page data's link, which becomes bidirectional. Its mirror of flights is stopped."""
    link = MirrorTopic.objects.get(name=NAME).link
    link.mode = "BIDIRECTIONAL"
    link.state = "ACTIVE"
    link.save()
    MirrorTopic.objects.filter(name=NAME).update(state=MirrorState.STOPPED)
    assert link.source is not None
    return ClusterLink.objects.create(
        name=link.name,
        mode="BIDIRECTIONAL",
        destination=link.source,
        source=link.destination,
        source_cluster_id=link.destination.cluster_id,
        properties={},
        state_since=timezone.now(),
        created_at=timezone.now(),
        created_by="owner",
    )


def restore_url(back: ClusterLink) -> str:
    return f"/links/{back.destination.cluster_id}/{back.name}/mirrors/{NAME}/truncate-and-restore/"


def test_stopped_mirror_offers_the_restore_of_its_source(page_data: PageData, admin: Client, back: ClusterLink) -> None:
    assert restore_url(back) in admin.get(page_data.mirror_url(NAME)).content.decode()


def test_restore_confirmation_shows_diverged_records(admin: Client, back: ClusterLink, queue: Queue) -> None:
    queue.response = {NAME: [{"partition": 0, "start": 0, "end": 12, "common": 10}]}

    text = admin.get(restore_url(back)).content.decode()

    assert "Partition 0: from offset 10 to 12" in text
    assert "<dd>2</dd>" in text
    assert not RestoreRun.objects.exists()


def test_cancel_leads_to_a_page_if_the_topic_was_never_a_mirror(admin: Client, back: ClusterLink, queue: Queue) -> None:
    queue.response = {}

    text = admin.get(restore_url(back)).content.decode()
    found = re.search(r'href="([^"]+)">Cancel<', text)

    assert found is not None
    assert admin.get(found[1]).status_code == 200


def test_restore_starts_after_the_topic_name_was_typed(admin: Client, back: ClusterLink, queue: Queue) -> None:
    queue.response = {}
    assert admin.post(restore_url(back), {"confirm": "flight"}).status_code == 422
    assert not MirrorTopic.objects.filter(link=back).exists()

    response = admin.post(restore_url(back), {"confirm": NAME})

    assert response.status_code == 302
    assert MirrorTopic.objects.get(link=back).state == MirrorState.PENDING_SETUP_FOR_RESTORE


def test_failover_confirmation_shows_config_changes(page_data: PageData, admin: Client) -> None:
    MirrorTopic.objects.filter(name=NAME).update(source_configs={"retention.ms": "99000"}, state=MirrorState.ACTIVE)

    text = admin.get(f"{page_data.mirror_url(NAME)}failover/").content.decode()

    assert '<span class="mono">retention.ms</span>: 1 minute 39 seconds (99000)' in text


def test_exported_records_are_downloaded(page_data: PageData, admin: Client, settings: Any, tmp_path: Path) -> None:
    settings.EXPORT_DIR = str(tmp_path)
    with diverged_exports.writing("kept.jsonl.gz") as sink:
        sink(b"{}\n")
    run = RestoreRun.objects.create(
        mirror=MirrorTopic.objects.get(name=NAME),
        requested_by="amelia",
        requested_at=timezone.now(),
        exported_at=timezone.now(),
        export_name="kept.jsonl.gz",
        export_records=1,
    )
    address = f"{page_data.mirror_url(NAME)}restores/{run.pk}/records.jsonl.gz"

    assert address in admin.get(page_data.mirror_url(NAME, "restores")).content.decode()
    assert gzip.decompress(b"".join(admin.get(address).streaming_content)) == b"{}\n"  # type: ignore[attr-defined]

    diverged_exports.path_of("kept.jsonl.gz").unlink()

    text = admin.get(page_data.mirror_url(NAME, "restores")).content.decode()
    assert "1 diverged record exported" in text
    assert "the file kept.jsonl.gz is missing" in text
    assert address not in text


def test_restore_shows_its_progress(page_data: PageData, admin: Client) -> None:
    run = RestoreRun.objects.create(mirror=page_data.mirrors["lounges"], requested_by="amelia", requested_at=timezone.now())
    assert "common offset not determined yet" in admin.get(page_data.mirror_url("lounges", "restores")).content.decode()

    run.agreed_at = timezone.now()
    run.save()

    text = admin.get(page_data.mirror_url("lounges", "restores")).content.decode()
    assert "common offset found; diverged records are being exported" in text
    assert "common offset not determined yet" not in text


def test_each_restore_is_on_exactly_one_page(admin: Client, page_data: PageData) -> None:
    add_restores(page_data, 25)

    pages = walk(admin, page_data.mirror_url("lounges", "restores"))

    assert [page.count("no diverged records to export") for page in pages] == [10, 10, 5]
    assert re.findall(r"by &lt;(\d+)&gt;:", "".join(pages)) == [str(number) for number in range(25)]
    assert 'restores=2#restores">Next<' in pages[0]
