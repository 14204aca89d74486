"""The failover readiness of a link: its page, the tabs that load it, and its visibility."""

from __future__ import annotations

import pytest
from django.test import Client

from console.models import MirrorTopic, RoleBinding
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData, make_mirror, make_user
from tests.console.pages.conftest import client_of, htmx


def test_readiness_is_one_sentence_with_advice(page_data: PageData, reader: Client) -> None:
    text = reader.get(f"{page_data.link_url}readiness/").content.decode()

    assert "to fail over 12 mirror topics" in text
    assert "To become ready:" in text


@pytest.mark.parametrize("tab", ["drills/", "stops/"])
def test_tab_loads_the_readiness_and_links_it_without_scripts(page_data: PageData, reader: Client, tab: str) -> None:
    text = reader.get(f"{page_data.link_url}{tab}").content.decode()
    part = reader.get(f"{page_data.link_url}readiness/", **htmx("readiness")).content.decode()

    assert f'id="readiness" aria-label="Failover readiness" hx-get="{page_data.link_url}readiness/"' in text
    assert f'<a href="{page_data.link_url}readiness/">' in text
    assert "to fail over 12 mirror topics" in part
    assert "<html" not in part


def test_user_with_a_role_on_a_topic_does_not_see_the_readiness_of_the_link(page_data: PageData) -> None:
    user = make_user("dora")
    about = {"role": RoleBinding.Role.DEVELOPER_READ, "granted_at": page_data.now, "granted_by": "system"}
    RoleBinding.objects.create(user=user, cluster=page_data.east, resource_type="Topic", resource_name="flights", **about)
    client = client_of(user)

    response = client.get(f"{page_data.link_url}stops/")

    assert response.status_code == 200
    assert 'id="readiness"' not in response.content.decode()
    assert client.get(f"{page_data.link_url}readiness/").status_code == 403


@pytest.mark.parametrize("change", ["", "stopped", "deleting", "not set up"])
def test_all_tabs_count_the_same_mirrors(page_data: PageData, admin: Client, change: str) -> None:
    """A failover stops the mirror topics that are neither stopped nor being deleted; the heading counts all of them."""
    flights = page_data.mirrors["flights"]
    if change == "deleting":
        MirrorTopic.objects.filter(pk=flights.pk).update(deletion_requested_at=page_data.now)
    elif change:
        state = MirrorState.STOPPED if change == "stopped" else MirrorState.PENDING_SETUP
        make_mirror(page_data.link, "another", state, now=page_data.now)
    total = page_data.link.mirrors.listed().count()
    possible = page_data.link.mirrors.listed().exclude(state="STOPPED").filter(deletion_requested_at=None).count()

    overview, failover, ready, tasks = (
        admin.get(f"{page_data.link_url}{tab}") for tab in ("", "failover/", "readiness/", "tasks/")
    )
    headings = {response.context["health"].sentence for response in (overview, failover, ready, tasks)}

    assert len(headings) == 1
    assert f"of {total} mirror topics" in headings.pop()
    assert overview.context["tiles"][0].value == str(total)
    assert failover.context["tiles"][0].value == failover.context["pick_all"] == str(possible)
    assert f"to fail over {possible} mirror topics" in ready.context["readiness"].sentence
    assert f"{total - possible} mirror topic" in ready.content.decode()
