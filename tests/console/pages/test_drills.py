"""The Drills tab of a link, and the drill that keeps a link from being deleted."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from console.models import ClusterLink, Drill, MirrorTopic
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData
from tests.console.pages.conftest import htmx
from tests.console.pages.list_pages import walk
from tests.console.pages.list_rows import add_drills


@pytest.fixture
def drill(page_data: PageData) -> Drill:
    """A drill that is in progress."""
    about = {"start_spec": "latest", "requested_by": "amelia", "requested_at": page_data.now, "status_since": page_data.now}
    return Drill.objects.create(link=page_data.link, status="CHECKING", topics=["flights"], **about)


def cancel(client: Client, page_data: PageData, drill: Drill) -> int:
    return client.post(f"{page_data.link_url}drills/{drill.pk}/cancel/").status_code


def test_drill_in_progress_is_canceled_by_a_button(admin: Client, reader: Client, page_data: PageData, drill: Drill) -> None:
    before, for_reader = (client.get(f"{page_data.link_url}drills/").content.decode() for client in (admin, reader))

    assert cancel(reader, page_data, drill) == 403
    assert cancel(admin, page_data, drill) == 302

    drill.refresh_from_db()
    after = admin.get(f"{page_data.link_url}drills/").content.decode()
    button = f'id="cancel-drill-{drill.pk}"'
    assert [button in text for text in (before, for_reader, after)] == [True, False, False]
    assert (drill.status, drill.canceled_by) == ("CLEANING", "amelia")
    assert "Canceled by amelia." in after


def test_drill_that_is_over_or_of_another_link_is_not_canceled(admin: Client, page_data: PageData, drill: Drill) -> None:
    Drill.objects.filter(pk=drill.pk).update(status="PASSED")

    assert cancel(admin, page_data, drill) == 409
    assert admin.post(f"{page_data.link_url}drills/{drill.pk + 1}/cancel/").status_code == 404


def test_deletion_of_a_link_names_the_drill_in_progress(admin: Client, page_data: PageData, drill: Drill) -> None:
    MirrorTopic.objects.filter(link=page_data.link).update(state=MirrorState.STOPPED)

    page = admin.get(f"{page_data.link_url}delete/").content.decode()
    response = admin.post(f"{page_data.link_url}delete/", {"confirm": page_data.link.name})

    assert f"Failover drill {drill.pk} keeps the link." in page
    assert response.status_code == 409
    assert f"Failover drill {drill.pk} of cluster link" in response.content.decode()
    assert ClusterLink.objects.filter(pk=page_data.link.pk).exists()


def test_link_is_deleted_without_waiting_for_the_drill_if_the_user_chooses_so(
    admin: Client, page_data: PageData, drill: Drill
) -> None:
    MirrorTopic.objects.filter(link=page_data.link).update(state=MirrorState.STOPPED)

    response = admin.post(f"{page_data.link_url}delete/", {"confirm": page_data.link.name, "force": "true"})

    assert response.status_code == 302
    assert not ClusterLink.objects.filter(pk=page_data.link.pk).exists()


def test_deletion_of_a_link_without_a_drill_names_none(admin: Client, page_data: PageData) -> None:
    assert "keeps the link" not in admin.get(f"{page_data.link_url}delete/").content.decode()


def test_each_drill_is_on_exactly_one_page(admin: Client, page_data: PageData) -> None:
    add_drills(page_data, 25)

    pages = walk(admin, f"{page_data.link_url}drills/")

    assert [page.count('<section class="panel" aria-labelledby="drill-') - 1 for page in pages] == [10, 10, 6]
    assert re.findall(r"by &lt;(\d+)&gt;", "".join(pages)) == [str(number) for number in range(25)]
    assert "11 to 20 of 26" in pages[1]


def test_poll_returns_the_same_page_of_drills(admin: Client, page_data: PageData) -> None:
    add_drills(page_data, 25)

    part = admin.get(f"{page_data.link_url}drills/?page=3&seen=1:1", **htmx("live")).content.decode()

    assert re.findall(r"by &lt;(\d+)&gt;", part) == ["19", "20", "21", "22", "23", "24"]
    assert "seen" not in "".join(re.findall(r'href="([^"]+)">Previous<', part))
