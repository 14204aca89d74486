"""Several mirror topics at once: chosen in the form, in the list of source topics, or all that match a filter."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from console.links import topic_queries
from console.mirrors import bulk_actions
from console.models import BulkOperation, ClusterLink, MirrorTopic, SourceTopic
from tests.browser.page_data import PageData
from tests.console.pages.conftest import Queue, hidden_in
from tests.console.pages.test_bulk import carry_out, results

RADARS = ["radar-1", "radar-2", "radar-3"]


@pytest.fixture
def url(page_data: PageData) -> str:
    """The form of a link whose source has three radar topics that are not mirrored."""
    for name in RADARS:
        SourceTopic.objects.create(link=page_data.link, name=name, partitions=1, seen_at=page_data.now)
    return f"{page_data.link_url}mirrors/new/"


def names_of(operation: BulkOperation) -> list[str]:
    return sorted(operation.topics.values_list("name", flat=True))


def newest() -> BulkOperation:
    return BulkOperation.objects.latest("requested_at")


def test_several_topics_are_added_by_one_operation(admin: Client, queue: Queue, url: str) -> None:
    values = {"source_topic": RADARS[:2], "replication_factor": "3", "start": "latest"}

    response = admin.post(url, values)
    queued = list(queue.sent)
    operation = carry_out(response)

    assert response["Location"].startswith("/operations/")
    assert queued == ["advance_bulk_operation"]
    assert queue.called == []  # the worker checks the clusters
    assert results(operation) == {"radar-1": "ACCEPTED", "radar-2": "ACCEPTED"}
    added = MirrorTopic.objects.filter(name__in=RADARS)
    assert set(added.values_list("replication_factor", "start_spec", "state")) == {(3, "latest", "PENDING_SETUP")}


def test_names_are_entered_one_per_line(page_data: PageData, admin: Client, url: str) -> None:
    admin.post(url, {"source_topic": "radar-1\r\n radar-2 \r\n\r\nradar-1"})

    assert names_of(newest()) == ["radar-1", "radar-2"]


def test_all_topics_that_match_the_filter_are_added(admin: Client, url: str) -> None:
    page = admin.get(f"{url}?q=radar")

    admin.post(url, hidden_in(page) | {"all": "1"})

    assert "Add all 3 topics that match the filter" in page.content.decode()
    assert names_of(newest()) == RADARS


def test_all_includes_more_topics_than_the_list_shows(page_data: PageData, admin: Client, url: str) -> None:
    number = topic_queries.LIMIT + 5
    rows = (SourceTopic(link=page_data.link, name=f"bulk-{at:04}", partitions=1, seen_at=page_data.now) for at in range(number))
    SourceTopic.objects.bulk_create(rows)
    page = admin.get(f"{url}?q=bulk-")

    admin.post(url, hidden_in(page) | {"all": "1"})

    assert f"has {number} topics that match" in page.content.decode()
    assert f"Add all {number} topics that match the filter" in page.content.decode()
    assert len(names_of(newest())) == number


def test_all_adds_nothing_if_an_operation_does_not_take_so_many(
    admin: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_actions, "MOST", 2)
    page, before = admin.get(f"{url}?q=radar"), BulkOperation.objects.count()

    response = admin.post(url, hidden_in(page) | {"all": "1"})

    assert "Add all 3 topics that match the filter" in page.content.decode()
    assert response.status_code == 422
    assert "3 topics are selected, and an operation takes at most 2. Nothing was changed." in response.content.decode()
    assert BulkOperation.objects.count() == before


def test_all_adds_nothing_if_the_list_has_changed(page_data: PageData, admin: Client, url: str) -> None:
    page, before = admin.get(f"{url}?q=radar"), BulkOperation.objects.count()
    SourceTopic.objects.create(link=page_data.link, name="radar-4", partitions=1, seen_at=page_data.now)

    response = admin.post(url, hidden_in(page) | {"all": "1"})

    assert response.status_code == 409
    assert "The list of source topics has changed" in response.content.decode()
    assert "Add all 4 topics that match the filter" in response.content.decode()
    assert BulkOperation.objects.count() == before


def test_refused_form_keeps_the_chosen_topics(admin: Client, url: str) -> None:
    response = admin.post(url, {"source_topic": RADARS[:2], "start": "yesterday"})

    text = response.content.decode()
    assert response.status_code == 422
    assert 'id="start_error"' in text
    assert re.findall(r'<option value="([^"]+)" selected>', text) == RADARS[:2]


def test_selection_of_the_list_of_source_topics_opens_the_form(page_data: PageData, admin: Client, url: str) -> None:
    listed = admin.get(f"{page_data.link_url}topics/?q=radar").content.decode()
    before = BulkOperation.objects.count()

    form = admin.post(url, {"intent": "choose", "q": "radar", "source_topic": ["radar-1", "radar-3"]}).content.decode()

    assert '<input type="checkbox" class="form-check-input" data-pick name="source_topic" value="radar-1"' in listed
    assert f'href="{url}?topic=radar-1">Mirror' in listed
    assert re.findall(r'<option value="([^"]+)" selected>', form) == ["radar-1", "radar-3"]
    assert BulkOperation.objects.count() == before


def test_list_of_source_topics_offers_no_mirror_for_mirrored_and_internal_topics(
    page_data: PageData, admin: Client, url: str
) -> None:
    text = admin.get(f"{page_data.link_url}topics/").content.decode()

    picked = re.findall(r'name="source_topic" value="([^"]+)"', text)
    assert set(RADARS) <= set(picked)
    assert not {"flights", "__state"} & set(picked)


def test_reader_is_offered_no_selection(page_data: PageData, reader: Client, url: str) -> None:
    text = reader.get(f"{page_data.link_url}topics/").content.decode()

    assert 'name="source_topic"' not in text
    assert "mirror-selected" not in text
    assert reader.post(url, {"source_topic": RADARS[:2]}).status_code == 403


def test_failed_creations_are_retried_with_the_same_options(page_data: PageData, admin: Client, url: str) -> None:
    values: dict[str, Any] = {"source_topic": RADARS[:2], "replication_factor": "2"}
    ClusterLink.objects.filter(pk=page_data.link.pk).update(state="PAUSED")
    failed = carry_out(admin.post(url, values))
    ClusterLink.objects.filter(pk=page_data.link.pk).update(state="ACTIVE")
    page = admin.get(f"/operations/{failed.pk}/").content.decode()

    retried = carry_out(admin.post(f"/operations/{failed.pk}/retry/"))

    assert results(failed) == {"radar-1": "FAILED", "radar-2": "FAILED"}
    assert "is paused. Set cluster.link.paused to false first." in page
    assert f'action="/operations/{failed.pk}/retry/"' in page
    assert results(retried) == {"radar-1": "ACCEPTED", "radar-2": "ACCEPTED"}
    assert MirrorTopic.objects.get(name="radar-1").replication_factor == 2
    assert bulk_actions.failed_names(retried) == []
