"""A user with a role on a topic may open the link's overview, but no page with data of all mirrors of the link."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from console.models import AuditEvent, ClusterLink, LinkTask, RoleBinding, StopReport
from linkengine.domain.states import MirrorState
from tests.browser.page_data import EAST, WEST, PageData, connection, make_link, make_mirror, make_user
from tests.console.pages.conftest import client_of

LINK = f"/links/{EAST}/west-to-east/"
OF_THE_LINK = tuple(
    f"{LINK}{path}"
    for path in (
        "history/",
        "history/?span=24h",
        "topics/",
        "topics/flights/",
        "tasks/",
        "groups/",
        "groups/?status=IN_USE",
        "groups/?format=csv",
        "acls/",
        "acls/?status=conflicts",
        "drills/",
        "configuration/",
        "filters/",
    )
)
OF_THE_CLUSTER = (f"/clusters/{EAST}/namespaces/",)
# Pages that show only visible mirrors.
FOR_ALL = (
    LINK,
    f"{LINK}failover/",
    f"{LINK}stops/",
    f"{LINK}stops/?format=json",
    "/failover-reports/",
    f"{LINK}?format=csv",
    f"/clusters/{EAST}/",
)


def person(page_data: PageData, name: str = "daisy", **resource: Any) -> Client:
    return client_of(grant(make_user(name), page_data, **resource))


def grant(user: User, page_data: PageData, **resource: Any) -> User:
    place = {"cluster": page_data.east, **resource}
    RoleBinding.objects.create(
        user=user, role=RoleBinding.Role.DEVELOPER_READ, granted_at=page_data.now, granted_by="amelia", **place
    )
    return user


@pytest.fixture
def narrow(page_data: PageData) -> Client:
    """Daisy, with a role on one topic."""
    return person(page_data, resource_type="Topic", resource_name="flights")


def tabs_on(client: Client, url: str) -> list[str]:
    nav = re.search(r'<nav[^>]*aria-label="Link".*?</nav>', client.get(url).content.decode(), re.S)
    assert nav is not None
    return re.findall(r'href="([^"]+)"', nav.group())


def tabs_of(client: Client) -> list[str]:
    """Return the URLs of all tabs that a user is offered: those of the groups, and those within each group."""
    groups = tabs_on(client, LINK)
    return list(dict.fromkeys([*groups, *(tab for group in groups for tab in tabs_on(client, group))]))


@pytest.mark.parametrize("address", [*OF_THE_LINK, *OF_THE_CLUSTER])
def test_topic_role_may_not_open_pages_of_the_whole_link(narrow: Client, address: str) -> None:
    assert narrow.get(address).status_code == 403
    assert AuditEvent.objects.filter(actor="daisy", action="VIEW", result="DENIED").count() == 1


def test_topic_role_may_not_start_a_drill(narrow: Client, page_data: PageData) -> None:
    before = page_data.link.drills.count()

    assert narrow.post(f"{LINK}drills/", {"start": "latest"}).status_code == 403
    assert page_data.link.drills.count() == before


@pytest.mark.parametrize("address", FOR_ALL)
def test_topic_role_sees_no_other_topics(narrow: Client, address: str) -> None:
    response = narrow.get(address)

    assert response.status_code == 200
    for other in ("bookings", "gates", "fares", "app-gates"):
        assert other not in response.getvalue().decode()


def test_every_visible_tab_opens(narrow: Client, reader: Client, admin: Client) -> None:
    shown = {name: tabs_of(client) for name, client in (("narrow", narrow), ("reader", reader), ("admin", admin))}

    assert [url.removeprefix(LINK) for url in shown["narrow"]] == ["", "failover/", "stops/"]
    assert (len(shown["reader"]), len(shown["admin"])) == (12, 13)
    for client, name in ((narrow, "narrow"), (reader, "reader"), (admin, "admin")):
        assert {client.get(url).status_code for url in shown[name]} == {200}


@pytest.mark.parametrize("address", [*OF_THE_LINK, *FOR_ALL])
def test_link_role_sees_all_pages_of_the_link(page_data: PageData, address: str) -> None:
    client = person(page_data, resource_type="ClusterLink", resource_name="west-to-east")

    assert client.get(address).status_code == 200


@pytest.mark.parametrize("address", [*OF_THE_LINK, *OF_THE_CLUSTER, *FOR_ALL])
def test_cluster_role_sees_all_pages_of_its_links(page_data: PageData, address: str) -> None:
    assert person(page_data).get(address).status_code == 200


def test_topic_role_sees_the_reports_of_its_topics(page_data: PageData) -> None:
    client = person(page_data, resource_type="Topic", resource_name="flights")
    (gates,) = StopReport.objects.all()
    gates.pk, gates.mirror, gates.records_not_copied = None, page_data.mirrors["flights"], 7
    gates.save()

    response = client.get(f"{LINK}stops/?format=json").json()

    assert [row["mirror_topic_name"] for row in response["data"]] == ["flights"]
    assert (response["totals"]["mirrors"], response["totals"]["records_not_copied"]) == (1, 7)


def test_tiles_count_only_visible_mirrors(narrow: Client, admin: Client) -> None:
    tile = r"<dt>Mirror topics</dt>\s*<dd>(\d+)<"
    for client, count in ((narrow, "1"), (admin, "13")):
        assert re.findall(tile, client.get(LINK).content.decode()) == [count]
        assert re.search(rf"Mirror topics\">\s*{count}:", client.get("/links/").content.decode())


def test_failing_tasks_are_shown_only_with_a_link_role(page_data: PageData, narrow: Client, admin: Client) -> None:
    LinkTask.objects.create(link=page_data.link, name="TopicConfigsSync", error_count=2)

    assert 'id="failing-tasks"' in admin.get(LINK).content.decode()
    assert 'id="failing-tasks"' not in narrow.get(LINK).content.decode()


def test_cluster_page_offers_namespaces_only_with_a_cluster_role(narrow: Client, reader: Client) -> None:
    address = f"/clusters/{EAST}/"
    assert "namespaces/" in reader.get(address).content.decode()
    text = narrow.get(address).content.decode()
    assert "namespaces/" not in text
    assert "No topics yet" not in text


@pytest.fixture
def source_side(page_data: PageData) -> ClusterLink:
    """Return the source side of a connection, whose mirrors belong to the paired link on the other cluster."""
    values = {"mode": "SOURCE", "connection_mode": "OUTBOUND", "properties": connection("us-east.kafka.example:9092")}
    here = make_link(page_data.east, page_data.west, "sent", page_data.now, **values)
    there = make_link(page_data.west, page_data.east, "sent", page_data.now, mode="DESTINATION", connection_mode="INBOUND")
    make_mirror(there, "ledger", MirrorState.ACTIVE, lag=90_210, now=page_data.now)
    return here


def test_tiles_of_the_paired_link_require_permission(page_data: PageData, source_side: ClusterLink, admin: Client) -> None:
    address = f"/links/{WEST}/sent/"
    local = person(page_data, cluster=page_data.west)

    assert "90,210" in admin.get(address).content.decode()
    text = local.get(address).content.decode()
    assert "us-east" in text
    assert 'id="other-side"' in text
    for figure in ("90,210", "1 mirror topic", '<dl class="tiles">'):
        assert figure not in text


def test_tiles_of_the_paired_link_count_only_visible_topics(page_data: PageData, source_side: ClusterLink) -> None:
    other = ClusterLink.objects.get(name="sent", destination=page_data.east)
    make_mirror(other, "payroll", MirrorState.ACTIVE, lag=7, now=page_data.now)
    user = grant(make_user("edith"), page_data, cluster=page_data.west)
    client = client_of(grant(user, page_data, resource_type="Topic", resource_name="payroll"))

    text = client.get(f"/links/{WEST}/sent/").content.decode()

    assert "1 mirror topic from us-west to us-east" in text
    assert "90,210" not in text


def test_deletion_of_the_source_side_lists_affected_mirrors(
    page_data: PageData, source_side: ClusterLink, admin: Client
) -> None:
    other = ClusterLink.objects.get(name="sent", destination=page_data.east)
    make_mirror(other, "done", MirrorState.STOPPED, now=page_data.now)
    address = f"/links/{WEST}/sent/delete/"

    text = admin.get(address).content.decode()

    assert "Copying stops for 1 mirror topic of the paired link" in text
    assert "<li>ledger</li>" in text
    assert "<li>done</li>" not in text
    assert "No mirror topic is being copied" not in text
    assert admin.post(address, {"confirm": "sent"}).status_code == 422
    assert ClusterLink.objects.filter(pk=source_side.pk).exists()
    admin.post(address, {"confirm": "sent", "ends": "true"})
    assert not ClusterLink.objects.filter(pk=source_side.pk).exists()


def test_deletion_of_the_source_side_counts_hidden_mirrors(page_data: PageData, source_side: ClusterLink) -> None:
    user = make_user("edith")
    RoleBinding.objects.create(
        user=user, role="CloudClusterAdmin", cluster=page_data.west, granted_at=page_data.now, granted_by="amelia"
    )

    text = client_of(user).get(f"/links/{WEST}/sent/delete/").content.decode()

    assert "1 that you do not have permission to see" in text
    assert "ledger" not in text
