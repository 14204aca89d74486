from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Cluster, ClusterLink, Environment, Organization, RoleBinding
from linkengine.domain.states import LinkState, MirrorState
from tests.browser.addresses import OPEN, PAGES, REFUSALS
from tests.browser.scene import EAST, SECRET, Scene, make_cluster, make_link, make_mirror
from tests.console.pages.conftest import Queue, client_of, htmx

# The page of one mirror reads one thing per part (who asks, roles, mirror, partitions, errors, gaps, lineage, samples, …);
# that of tasks eleven: copying and verifying are told from their own rows. Source topics are judged by eight sorts of facts.
MOST_QUERIES = {"/mirrors/": 23, "/tasks/": 11, "/west-to-east/topics/": 13, "/west-to-east/": 11, "/namespaces/": 9}


@pytest.mark.parametrize("address", PAGES)
def test_an_administrator_sees_every_page(admin: Client, queue: Queue, address: str) -> None:
    response = admin.get(address)

    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    text = response.content.decode()
    assert len(re.findall("<h1", text)) == 1
    assert "<title>" in text
    assert SECRET not in text
    assert queue.called == []  # no page waits for a worker, let alone Kafka


@pytest.mark.parametrize(("address", "status"), REFUSALS)
def test_a_refusal_is_a_page_with_its_own_status(admin: Client, address: str, status: int) -> None:
    response = admin.get(address)

    assert response.status_code == status
    assert "<h1" in response.content.decode()


@pytest.mark.parametrize("address", PAGES)
def test_nobody_sees_a_page_without_signing_in(scene: Scene, address: str) -> None:
    response = Client().get(address)

    assert response.status_code == 302
    assert response["Location"].startswith("/sign-in/?next=/")


@pytest.mark.parametrize("address", OPEN)
def test_the_sign_in_page_is_open(db: None, address: str) -> None:
    assert Client().get(address).status_code == 200


@pytest.mark.parametrize("address", [one for one in PAGES if one.startswith(("/links/Z", "/clusters/", "/environments/p"))])
def test_a_stranger_is_told_that_nothing_is_there(stranger: Client, address: str) -> None:
    assert stranger.get(address).status_code == 404


@pytest.mark.parametrize("address", PAGES)
def test_a_page_needs_few_queries(reader: Client, address: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        response = reader.get(address)

    allowed = next((most for part, most in MOST_QUERIES.items() if part in address), 8)
    assert len(queries) <= allowed or response.status_code == 403


@pytest.mark.parametrize("path", ["", "/links/", "/topics/"])
def test_more_mirrors_need_no_more_queries(scene: Scene, path: str) -> None:
    client, address = client_of(scene.admin), path or scene.link_url
    client.get(address)
    with CaptureQueriesContext(connection) as few:
        client.get(address)
    for number in range(60):
        make_mirror(scene.link, f"extra-{number}", MirrorState.ACTIVE, rate=10.0, now=scene.now)

    with CaptureQueriesContext(connection) as many:
        response = client.get(address)

    assert len(many) == len(few)
    assert response.status_code == 200


@pytest.mark.parametrize("address", ["/links/", "link", "mirror"])
def test_a_fragment_holds_the_part_and_nothing_around_it(scene: Scene, admin: Client, address: str) -> None:
    address = {"link": scene.link_url, "mirror": scene.mirror_url("flights")}.get(address, address)

    whole, part = admin.get(address), admin.get(address, **htmx("live"))

    assert part.status_code == 200
    assert b"<html" in whole.content
    assert b"<html" not in part.content
    assert b"Sign out" not in part.content
    assert "HX-Target" in part["Vary"]


def test_a_fragment_asks_for_the_same_rights(scene: Scene, stranger: Client) -> None:
    assert stranger.get(scene.link_url, **htmx("live")).status_code == 404


def test_a_fragment_after_the_session_has_ended_leads_to_sign_in(scene: Scene) -> None:
    response = Client().get(scene.link_url, **htmx("live", **{"HX-Current-URL": f"http://testserver{scene.link_url}"}))

    assert response.status_code == 204
    assert response["HX-Redirect"] == f"/sign-in/?next={scene.link_url}"


@pytest.mark.parametrize("address", ["/links", "/environments/production", "/audit"])
def test_an_address_without_its_slash_leads_to_the_page(admin: Client, address: str) -> None:
    response = admin.get(f"{address}?q=x")

    assert response.status_code == 302
    assert response["Location"] == f"{address}/?q=x"


def test_an_environment_counts_the_same_mirrors_in_need_of_attention_as_its_links(admin: Client) -> None:
    """A mirror that is on its way but cannot get on (its error is listed) counts as much as one that has failed."""
    card = admin.get("/environments/").content.decode()
    tile = admin.get("/links/ZGVtby1kZXN0LWNsdXN0ZQ/west-to-east/").content.decode()

    assert "4 mirror topics need attention" in card
    assert re.search(r"<dt>Needs attention</dt>\s*<dd>4<", tile)


def test_each_environment_counts_its_own_links_whatever_its_clusters_are_called(scene: Scene, admin: Client) -> None:
    """Names of clusters are unique in their environment only, and the source's half of a link belongs to the source."""
    other = Environment.objects.create(organization=scene.organization, name="Test", slug="test", created_at=scene.now)
    there = make_cluster(other, scene.east.name, "dGVzdC1kZXN0LWNsdXN0ZQ", scene.now)
    make_link(scene.west, there, "half", scene.now, mode="SOURCE", state=LinkState.FAILED)

    cards = admin.get("/environments/").context["places"]

    for place in cards:
        rows = admin.get(place["url"]).context["rows"]
        assert place["links"] == len(rows)
        for figure in ("mirrors", "attention", "unclear"):
            assert place[figure] == sum(getattr(row, figure) for row in rows)
    assert [(one["links"], one["unclear"]) for one in cards if one["name"] == other.name] == [(1, 1)]


@pytest.fixture
def neighbour(scene: Scene) -> Client:
    """Charles administers us-east and owns its resources; the clusters at the other ends belong to another organization."""
    for role in ("CloudClusterAdmin", "ResourceOwner"):
        RoleBinding.objects.create(
            user=scene.stranger, role=role, cluster=scene.east, granted_at=scene.now, granted_by="charles"
        )
    hidden = Organization.objects.create(name="Umbra organization", created_at=scene.now)
    there = Environment.objects.create(organization=hidden, name="Umbra environment", slug="umbra", created_at=scene.now)
    for cluster in Cluster.objects.exclude(pk=scene.east.pk):
        Cluster.objects.filter(pk=cluster.pk).update(
            environment=there, name=f"umbra-{cluster.pk}", bootstrap_servers="umbra.example:9092"
        )
    ClusterLink.objects.filter(destination=scene.west).update(name="umbra-link")
    User.objects.create(username="umbra-user")
    link = ClusterLink.objects.get(name="south-archive")
    link.properties, link.uses_cluster_credentials = {}, True
    link.save()
    return client_of(scene.stranger)


@pytest.mark.parametrize(
    "address", [*PAGES, "/links/?q=mbra", "/search/?q=mbra", f"/links/{EAST}/south-archive/configuration/"]
)
def test_no_page_names_clusters_links_or_users_that_the_reader_may_not_see(neighbour: Client, address: str) -> None:
    assert "umbra" not in neighbour.get(address).content.decode().lower()
