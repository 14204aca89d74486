"""The search finds what the reader may see, and the topics page of a cluster links topics with their mirror topics."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from console.models import RoleBinding, SourceTopic, SyncedGroup
from linkengine.domain.groups import GroupStatus
from tests.browser.page_data import EAST, WEST, PageData, make_user
from tests.console.pages.conftest import client_of

KINDS = ("Clusters", "Source topics", "Topics of clusters", "Consumer groups", "Users", "Cluster links", "Mirror topics")


@pytest.fixture(autouse=True)
def rows(page_data: PageData) -> None:
    """Rows of every kind whose name contains "zeta"."""
    page_data.west.name = "zeta-west"
    page_data.west.save(update_fields=["name"])
    SourceTopic.objects.create(link=page_data.link, name="zeta-there", partitions=1, seen_at=page_data.now)
    SourceTopic.objects.create(link=page_data.link, name="zeta-internal", partitions=1, internal=True, seen_at=page_data.now)
    SourceTopic.objects.create(cluster=page_data.east, name="zeta-here", partitions=1, seen_at=page_data.now)
    status = {"status": GroupStatus.SYNCED, "listed_at": page_data.now}
    SyncedGroup.objects.create(link=page_data.link, name="zeta-readers", destination_name="zeta-readers", **status)


def kinds_of(response: Any) -> list[str]:
    return [kind for kind in re.findall(r"<h2[^>]*>([^<]+)</h2>", response.content.decode()) if kind in KINDS]


def person(page_data: PageData, name: str, **where: Any) -> Client:
    user = make_user(name)
    about = {"role": RoleBinding.Role.DEVELOPER_READ, "granted_at": page_data.now, "granted_by": "system"}
    RoleBinding.objects.create(user=user, **about, **where)
    return client_of(user)


def test_administrator_finds_every_kind(page_data: PageData, admin: Client) -> None:
    person(page_data, "zeta-person", organization=page_data.organization)

    response = admin.get("/search/?q=zeta")

    text = response.content.decode()
    assert kinds_of(response) == [
        "Cluster links",
        "Clusters",
        "Source topics",
        "Topics of clusters",
        "Consumer groups",
        "Users",
    ]
    assert f'href="/clusters/{WEST}/"' in text
    assert f'href="{page_data.link_url}topics/zeta-there/"' in text
    assert f'href="/clusters/{EAST}/topics/zeta-here/"' in text
    assert f'href="{page_data.link_url}groups/?q=zeta-readers"' in text
    assert 'href="/access/?q=zeta-person"' in text
    assert "zeta-internal" not in text
    for address in re.findall(r'<li class="name"><a href="([^"]+)"', text):
        assert admin.get(address).status_code == 200


@pytest.mark.parametrize(
    ("where", "kinds"),
    [
        ({}, ["Cluster links", "Clusters", "Source topics", "Topics of clusters", "Consumer groups"]),
        ({"resource_type": "Cluster", "resource_name": ""}, ["Source topics", "Topics of clusters", "Consumer groups"]),
        ({"resource_type": "ClusterLink", "resource_name": "west-to-east"}, ["Source topics", "Consumer groups"]),
        ({"resource_type": "ClusterLink", "resource_name": "another"}, []),
        ({"resource_type": "Topic", "resource_name": "zeta-here"}, ["Topics of clusters"]),
        ({"resource_type": "Topic", "resource_name": "zeta", "prefixed": True}, ["Topics of clusters"]),
        ({"resource_type": "Topic", "resource_name": "flights"}, []),
        ({"resource_type": "Group", "resource_name": "zeta-readers"}, []),
    ],
)
def test_reader_finds_only_what_a_role_covers(page_data: PageData, where: dict[str, Any], kinds: list[str]) -> None:
    place = {"cluster": page_data.east} if where else {"organization": page_data.organization}

    response = person(page_data, "reader-of-some", **place, **where).get("/search/?q=zeta")

    assert kinds_of(response) == kinds
    assert ("No results" in response.content.decode()) == (not kinds)


def test_user_without_a_role_finds_nothing(stranger: Client) -> None:
    assert "No results" in stranger.get("/search/?q=zeta").content.decode()


def test_user_finds_only_users_whose_roles_are_visible(page_data: PageData, reader: Client, admin: Client) -> None:
    person(page_data, "zeta-person", organization=page_data.organization)

    assert "zeta-person" in admin.get("/search/?q=zeta-p").content.decode()
    assert "zeta-person" not in reader.get("/search/?q=zeta-p").content.decode()


def test_topics_of_a_cluster_show_mirroring_on_both_sides(page_data: PageData, admin: Client) -> None:
    SourceTopic.objects.create(cluster=page_data.east, name="flights", partitions=3, is_mirror=True, seen_at=page_data.now)
    SourceTopic.objects.create(
        cluster=page_data.east, name="gates", partitions=3, seen_at=page_data.now
    )  # stopped: an ordinary topic
    SourceTopic.objects.create(cluster=page_data.east, name="unknown", partitions=3, is_mirror=True, seen_at=page_data.now)

    east = admin.get(f"/clusters/{EAST}/topics/").content.decode()
    west = admin.get(f"/clusters/{WEST}/topics/").content.decode()

    assert f'<span class="tag">Mirror</span> of <a href="{page_data.mirror_url("flights")}">flights on zeta-west</a>' in east
    assert east.count('<span class="tag">Mirror</span>') == 1
    assert '<span class="tag">Mirror topic</span>' in east
    assert f'<a href="{page_data.mirror_url("flights")}">flights on us-east</a>' in west
    assert "__state" not in west


def test_topics_of_a_cluster_are_filtered_by_role_and_name(page_data: PageData, reader: Client, stranger: Client) -> None:
    client = person(page_data, "reader-of-one", cluster=page_data.west, resource_type="Topic", resource_name="fares")
    names = {name: client.get(f"/clusters/{WEST}/topics/").content.decode().count(name) > 0 for name in ("fares", "fleet")}

    assert names == {"fares": True, "fleet": False}
    assert "fleet" not in reader.get(f"/clusters/{WEST}/topics/?q=far").content.decode()
    assert stranger.get(f"/clusters/{WEST}/topics/").status_code == 404
