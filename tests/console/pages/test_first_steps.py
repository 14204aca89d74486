"""The checklist from an empty installation to a verified mirror."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.models import ClusterLink, Environment, MirrorTopic, Organization, VerifyRun
from linkengine.domain.states import MirrorState
from tests.browser.page_data import EAST, WEST, PageData, make_cluster, make_link, make_mirror, make_page_data, make_person
from tests.console.pages.conftest import Queue, client_of, post_form


@pytest.fixture
def page_data(db: None) -> PageData:
    """Page data that do not exist during the other tests of this file, which begin with an empty database."""
    return make_page_data()


def current_step(client: Client) -> tuple[str, str]:
    """Return title and address of the step that is next; ("", "") if all are done."""
    text = client.get("/help/first-steps/").content.decode()
    found = re.search(r'aria-current="step".*?<h2[^>]*>\d\. ([^<]+)</h2>(.*?)</li>', text, re.DOTALL)
    if found is None:
        return "", ""
    address = re.search(r'href="([^"]+)"', found[2])
    return found[1], address[1] if address else ""


def test_an_empty_installation_begins_with_an_environment(db: None) -> None:
    root, user = User.objects.create_superuser("root"), User.objects.create_user("user")

    assert current_step(client_of(root)) == ("Create an organization and an environment", "/admin/console/environment/add/")
    assert current_step(client_of(user)) == ("Create an organization and an environment", "")


def test_each_step_leads_to_the_next(db: None) -> None:
    now = timezone.now()
    admin = client_of(make_person("amelia", "OrganizationAdmin", Organization.objects.create(name="Acme", created_at=now), now))
    environment = Environment.objects.create(
        organization=Organization.objects.get(), name="Production", slug="production", created_at=now
    )
    assert current_step(admin) == ("Register two clusters", "/environments/production/clusters/new/")

    west, east = (make_cluster(environment, name, key, now) for name, key in (("west", WEST), ("east", EAST)))
    assert current_step(admin) == ("Create a cluster link", "/links/new/")

    link = make_link(west, east, "first", now)
    assert current_step(admin) == ("Add a mirror topic", f"/links/{EAST}/first/mirrors/new/")

    mirror = make_mirror(link, "orders", MirrorState.PENDING_SETUP, now=now)
    assert current_step(admin) == ("Wait until it is active", mirror.get_absolute_url())

    mirror.state = MirrorState.ACTIVE
    mirror.save()
    assert current_step(admin) == ("Verify it", mirror.get_absolute_url())

    VerifyRun.objects.create(mirror=mirror, status="DIFFERENT", requested_by="amelia", requested_at=now)
    assert current_step(admin)[0] == "Verify it"

    VerifyRun.objects.create(mirror=mirror, status="EQUAL", requested_by="amelia", requested_at=now)
    assert current_step(admin) == ("", "")


def link_in(client: Client, address: str, target: str) -> str:
    """Return the address of a link on a page, whose beginning matches a pattern."""
    found = re.search(rf'(?:href|action)="({target}[^"]*)"', client.get(address).content.decode())
    assert found, f"{address} has no link to {target}"
    return html.unescape(found[1])


def submit(client: Client, address: str, values: dict[str, Any]) -> str:
    """Submit the form of a page; return the address to which it leads."""
    response = post_form(client, address, values)
    assert response.status_code == 302, response.content.decode()
    return str(response["Location"])


def test_forms_of_the_steps_lead_from_an_empty_database_to_a_verified_mirror(db: None, queue: Queue) -> None:
    """Only what the engine does is written as rows: the state of the mirror, and the result of the verification."""
    root = client_of(User.objects.create_superuser("root"))

    title, environment = current_step(root)
    assert title == "Create an organization and an environment"
    submit(root, link_in(root, environment, "/admin/console/organization/add/"), {"name": "Acme"})
    found = re.search(r'<option value="(\d+)">Acme</option>', root.get(environment).content.decode())
    assert found
    submit(root, environment, {"organization": found[1], "name": "Production", "slug": "production"})

    for name, cluster_id in (("west", WEST), ("east", EAST)):
        title, register = current_step(root)
        assert title == "Register two clusters"
        queue.response |= {"cluster_id": cluster_id}
        connection = {"bootstrap_servers": f"{name}.example:9092", "security_protocol": "PLAINTEXT"}
        submit(root, register, {"name": name, "intent": "register"} | connection)

    title, step = current_step(root)
    assert title == "Create a cluster link"
    queue.response |= {"cluster_id": WEST}  # of the source, which the new link checks
    begin, source = {"direction": "receive", "preset": "custom"}, {"other_kind": "registered", "other": WEST}
    for values in (begin, source, {"own": EAST}, {"prefix": ""}):
        step = submit(root, step, values | {"intent": "next"})
    submit(root, step, {"name": "first", "intent": "create"})

    title, new_mirror = current_step(root)
    assert title == "Add a mirror topic"
    submit(root, new_mirror, {"source_topic": "orders"})
    title, mirror = current_step(root)
    assert title == "Wait until it is active"
    assert "orders" in root.get(mirror).content.decode()
    MirrorTopic.objects.update(state=MirrorState.ACTIVE, num_partitions=1)

    assert current_step(root) == ("Verify it", mirror)
    verification = link_in(root, mirror, f"{mirror}verification/")
    submit(root, link_in(root, verification, f"{mirror}verify/"), {})
    assert current_step(root)[0] == "Verify it"
    VerifyRun.objects.update(status="EQUAL")

    assert current_step(root) == ("", "")
    assert "All steps are done." in root.get("/help/first-steps/").content.decode()


def test_first_steps_need_few_queries(page_data: PageData, admin: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert admin.get("/help/first-steps/").status_code == 200

    assert len(queries) <= 8


@pytest.mark.parametrize("exists", [True, False])
def test_the_environments_page_leads_to_it_while_there_is_no_link(page_data: PageData, admin: Client, exists: bool) -> None:
    if not exists:
        MirrorTopic.objects.all().delete()
        ClusterLink.objects.all().delete()
    page = admin.get("/environments/").content.decode().split("<h1", 1)[1]

    assert ("/help/first-steps/" in page) is not exists
