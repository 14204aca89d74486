"""The Tasks tab of a link."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from console.models import ClusterLink, LinkConfig, LinkTask, MirrorPartition, MirrorTopic
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData
from tests.console.pages.conftest import Queue, client_of


def test_tasks_page_shows_state_errors_and_run_button(page_data: PageData, admin: Client) -> None:
    errors = [{"code": "TIMEOUT_ERROR", "message": "No broker responded."}]
    row = LinkTask.objects.create(link=page_data.link, name="TopicConfigsSync", errors=errors, error_count=1)
    LinkTask.objects.filter(pk=row.pk).update(started_at=page_data.now, finished_at=page_data.now, failing_since=page_data.now)

    text = admin.get(f"{page_data.link_url}tasks/").content.decode()

    assert "In error" in text
    assert "No broker responded." in text
    assert 'id="run-TopicConfigsSync"' in text
    assert "Set acl.sync.enable to true" in text


def test_run_now_requests_the_task(page_data: PageData, admin: Client, queue: Queue) -> None:
    response = admin.post(f"{page_data.link_url}tasks/TopicConfigsSync/run/", follow=True)

    assert queue.sent == ["run_link_task"]
    assert "Run of TopicConfigsSync requested." in response.content.decode()


def test_reader_may_not_run_a_task(page_data: PageData) -> None:
    client = client_of(page_data.reader)

    assert "run-TopicConfigsSync" not in client.get(f"{page_data.link_url}tasks/").content.decode()
    assert client.post(f"{page_data.link_url}tasks/TopicConfigsSync/run/").status_code == 403


def test_overview_shows_errors_of_configured_tasks_only(page_data: PageData, admin: Client) -> None:
    assert "failing-tasks" not in admin.get(page_data.link_url).content.decode()
    LinkTask.objects.create(link=page_data.link, name="TopicConfigsSync", error_count=2)
    LinkTask.objects.create(link=page_data.link, name="AclSync", error_count=9)  # turned off since

    text = admin.get(page_data.link_url).content.decode()

    assert ": 2 errors in the last run" in text
    assert "all healthy" not in text
    assert "9 errors" not in text


@pytest.mark.parametrize("trouble", ["task", "engine", ""])
def test_link_is_shown_healthy_only_without_task_and_engine_errors(page_data: PageData, admin: Client, trouble: str) -> None:
    level = {"last_source_seen_at": timezone.now(), "source_end": F("mirror_end"), "last_high_watermark": F("mirror_end")}
    level |= {"observed_at": timezone.now(), "caught_up_at": timezone.now(), "phase": "COPYING", "error_code": ""}
    MirrorTopic.objects.exclude(state=MirrorState.ACTIVE).delete()
    MirrorTopic.objects.filter(transition_errors__isnull=False).delete()
    MirrorPartition.objects.update(**level)
    if trouble == "task":
        LinkTask.objects.create(link=page_data.link, name="TopicConfigsSync", error_count=2)
    if trouble == "engine":
        ClusterLink.objects.filter(pk=page_data.link.pk).update(engine_error="Spark is away.")

    assert ("all healthy" in admin.get(page_data.link_url).content.decode()) == (not trouble)


def test_overdue_run_is_shown_as_due(page_data: PageData, admin: Client) -> None:
    LinkConfig.objects.filter(link=page_data.link, name="consumer.offset.sync.enable").update(value="true")
    task = {"started_at": page_data.now - timedelta(minutes=5), "finished_at": page_data.now - timedelta(minutes=4)}
    LinkTask.objects.create(
        link=page_data.link, name="ConsumerOffsetSync", next_run_at=page_data.now - timedelta(minutes=3), **task
    )

    assert "<dt>Next run</dt><dd>due now</dd>" in admin.get(f"{page_data.link_url}tasks/").content.decode()
