from __future__ import annotations

import re

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Cluster, ClusterLink, Environment, LinkDraft, LinkTask, Organization, RoleBinding
from console.models.fields import UnreadableProperties
from linkengine.domain.linktasks import TaskName
from linkengine.domain.states import LinkState
from tests.browser.addresses import OPEN, PAGES, REFUSALS
from tests.browser.page_data import EAST, SECRET, PageData, make_cluster, make_link
from tests.browser.page_fixtures import DRAFT
from tests.console.pages.conftest import Queue, client_of, htmx, states_in_headlines

MOST = 10  # queries of a page

# Pages that explain states, or show those of past moments. The headline of all others is the health.
SHOW_STATES = re.compile("/(help/states|minute|mirrors/[^/]+/history)/$")

EXACT = re.compile(r"\(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)")  # beside the relative time


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("address", PAGES)
def test_administrator_sees_every_page_with_at_most_ten_queries(admin: Client, queue: Queue, address: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        response = admin.get(address)

    assert_few(queries)
    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    text = response.content.decode()
    assert len(re.findall("<h1", text)) == 1
    assert "<title>" in text
    assert SECRET not in text
    assert [time for time in re.findall("<time.*?</time>", text, re.DOTALL) if not EXACT.search(time)] == []
    assert queue.called == []  # no page waits for a worker or for Kafka
    assert bool(states_in_headlines(response)) is bool(SHOW_STATES.search(address))


@pytest.mark.parametrize("address", PAGES)
def test_page_is_shown_although_no_key_decrypts_the_stored_credentials(admin: Client, queue: Queue, address: str) -> None:
    lost = UnreadableProperties(Fernet(Fernet.generate_key()).encrypt(b"{}").decode())
    Cluster.objects.update(properties=lost)
    ClusterLink.objects.update(properties=lost)
    LinkDraft.objects.update(values=lost, checks=lost, listing=lost)

    assert admin.get(address).status_code == 200


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("address", "status"), REFUSALS)
def test_error_page_has_its_own_status(admin: Client, address: str, status: int) -> None:
    response = admin.get(address)

    assert response.status_code == status
    assert "<h1" in response.content.decode()
    assert not states_in_headlines(response)


@pytest.mark.parametrize("address", PAGES)
def test_pages_redirect_to_sign_in_without_a_session(page_data: PageData, address: str) -> None:
    response = Client().get(address)

    assert response.status_code == 302
    assert response["Location"].startswith("/sign-in/?next=/")


@pytest.mark.parametrize("address", OPEN)
def test_sign_in_page_needs_no_session(db: None, address: str) -> None:
    assert Client().get(address).status_code == 200


@pytest.mark.parametrize("address", [page for page in PAGES if page.startswith(("/links/Z", "/clusters/", "/environments/p"))])
def test_user_without_a_role_gets_not_found(stranger: Client, address: str) -> None:
    assert stranger.get(address).status_code == 404


def assert_few(queries: CaptureQueriesContext) -> None:
    assert len(queries) <= MOST, "\n".join(query["sql"][:200] for query in queries.captured_queries)


@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize(("user", "task_fails"), [("admin", True), ("reader", False), ("reader", True)])
def test_page_needs_at_most_ten_queries(
    request: pytest.FixtureRequest, page_data: PageData, user: str, address: str, task_fails: bool
) -> None:
    """The tasks of a link are read with its health if one of them fails."""
    if task_fails:
        failed = {
            "error_count": 1,
            "errors": [{"code": "AUTHORIZATION_ERROR", "message": "flights: The principal lacks a right."}],
        }
        for link in ClusterLink.objects.all():
            for name in TaskName:
                LinkTask.objects.create(link=link, name=name, **failed)
    client: Client = request.getfixturevalue(user)
    with CaptureQueriesContext(connection) as queries:
        response = client.get(address)

    assert_few(queries)
    assert response.status_code in {200, 403, 404}


@pytest.mark.parametrize("step", ["source", "destination", "configuration", "review"])
def test_step_of_a_draft_needs_at_most_ten_queries(admin: Client, step: str) -> None:
    address = f"/links/new/{DRAFT}/{step}/"
    admin.get(address)

    with CaptureQueriesContext(connection) as queries:
        response = admin.get(address)

    assert response.status_code == 200
    assert len(queries) <= 10


@pytest.mark.parametrize("address", ["/links/", "link", "mirror"])
def test_fragment_contains_only_its_part_of_the_page(page_data: PageData, admin: Client, address: str) -> None:
    address = {"link": page_data.link_url, "mirror": page_data.mirror_url("flights")}.get(address, address)

    whole, part = admin.get(address), admin.get(address, **htmx("live"))

    assert part.status_code == 200
    assert b"<html" in whole.content
    assert b"<html" not in part.content
    assert b"Sign out" not in part.content
    assert "HX-Target" in part["Vary"]


def test_fragment_requires_the_same_permissions_as_the_page(page_data: PageData, stranger: Client) -> None:
    assert stranger.get(page_data.link_url, **htmx("live")).status_code == 404


def test_fragment_redirects_to_sign_in_after_the_session_ended(page_data: PageData) -> None:
    response = Client().get(page_data.link_url, **htmx("live", **{"HX-Current-URL": f"http://testserver{page_data.link_url}"}))

    assert response.status_code == 204
    assert response["HX-Redirect"] == f"/sign-in/?next={page_data.link_url}"


@pytest.mark.parametrize("address", ["/links", "/environments/production", "/audit"])
def test_url_without_trailing_slash_redirects_to_the_page(admin: Client, address: str) -> None:
    response = admin.get(f"{address}?q=x")

    assert response.status_code == 302
    assert response["Location"] == f"{address}/?q=x"


def test_environment_card_counts_the_same_mirrors_as_the_link_tile(admin: Client) -> None:
    card = admin.get("/environments/").content.decode()
    tile = admin.get("/links/ZGVtby1kZXN0LWNsdXN0ZQ/west-to-east/").content.decode()

    (count,) = re.findall(r"<dt>Needs attention</dt>\s*<dd>(\d+)<", tile)
    assert int(count) > 3
    assert f"{count} mirror topics need attention" in card


def test_environment_card_counts_only_its_own_links(page_data: PageData, admin: Client) -> None:
    """Cluster names are unique only within an environment, and a source-side link belongs to the source cluster."""
    other = Environment.objects.create(organization=page_data.organization, name="Test", slug="test", created_at=page_data.now)
    there = make_cluster(other, page_data.east.name, "dGVzdC1kZXN0LWNsdXN0ZQ", page_data.now)
    make_link(page_data.west, there, "half", page_data.now, mode="SOURCE", state=LinkState.FAILED)

    cards = admin.get("/environments/").context["places"]

    for place in cards:
        rows = admin.get(place["url"]).context["rows"]
        assert place["links"] == len(rows)
        for figure in ("mirrors", "attention"):
            assert place[figure] == sum(getattr(row, figure) for row in rows)
    worst = [card["health"] for card in cards if card["name"] == other.name]
    assert [(view.badge.code, view.sentence.partition(":")[0]) for view in worst] == [("NOT_COPYING", "Link half")]


@pytest.fixture
def neighbour(page_data: PageData) -> Client:
    """Charles administers us-east; the other clusters belong to another organization."""
    for role in ("CloudClusterAdmin", "ResourceOwner"):
        RoleBinding.objects.create(
            user=page_data.stranger, role=role, cluster=page_data.east, granted_at=page_data.now, granted_by="charles"
        )
    hidden = Organization.objects.create(name="Umbra organization", created_at=page_data.now)
    there = Environment.objects.create(organization=hidden, name="Umbra environment", slug="umbra", created_at=page_data.now)
    for cluster in Cluster.objects.exclude(pk=page_data.east.pk):
        Cluster.objects.filter(pk=cluster.pk).update(
            environment=there, name=f"umbra-{cluster.pk}", bootstrap_servers="umbra.example:9092"
        )
    ClusterLink.objects.filter(destination=page_data.west).update(name="umbra-link")
    User.objects.create(username="umbra-user")
    link = ClusterLink.objects.get(name="south-archive")
    link.properties, link.uses_cluster_credentials = {}, True
    link.save()
    return client_of(page_data.stranger)


@pytest.mark.parametrize(
    "address", [*PAGES, "/links/?q=mbra", "/search/?q=mbra", f"/links/{EAST}/south-archive/configuration/"]
)
def test_pages_do_not_name_hidden_clusters_links_or_users(neighbour: Client, address: str) -> None:
    assert "umbra" not in neighbour.get(address).content.decode().lower()
