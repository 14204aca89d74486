from __future__ import annotations

import re

import pytest
from django.test import Client

from console.errors import UnavailableError
from console.models import Cluster, ClusterLink, MirrorTopic
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.browser.page_data import EAST, WEST, Scene
from tests.console.pages.conftest import Queue, client_of
from tests.console.pages.test_link_changes import OTHER, REGISTERED

DESTINATION, SOURCE, BIDIRECTIONAL = "DESTINATION", "SOURCE", "BIDIRECTIONAL"
# direction, additional form values, link.mode, connection.mode, name of the other cluster in the REST API
DIRECTIONS = [
    ("receive", {}, DESTINATION, "OUTBOUND", "source_cluster_id"),
    ("nonsense", {}, DESTINATION, "OUTBOUND", "source_cluster_id"),
    ("send", {}, SOURCE, "OUTBOUND", "destination_cluster_id"),
    ("accept", {}, DESTINATION, "INBOUND", "source_cluster_id"),
    ("both", {"connection_mode": "OUTBOUND"}, BIDIRECTIONAL, "OUTBOUND", "remote_cluster_id"),
    ("both", {"connection_mode": "INBOUND"}, BIDIRECTIONAL, "INBOUND", "remote_cluster_id"),
]
FIELDS = {
    "receive": {"source", "source_cluster_id", "bootstrap_servers", "destination", "name", "topic_prefix"},
    "send": {"source", "source_cluster_id", "bootstrap_servers", "destination", "name"},
    "accept": {"source", "destination", "name", "topic_prefix"},
    "both": {"source", "source_cluster_id", "bootstrap_servers", "destination", "name", "topic_prefix", "connection_mode"},
}


@pytest.mark.parametrize(("direction", "more", "mode", "connection", "remote"), DIRECTIONS)
def test_direction_sets_link_mode_and_connection_mode(
    admin: Client, direction: str, more: dict[str, str], mode: str, connection: str, remote: str
) -> None:
    asked = REGISTERED | {"direction": direction} | more

    snippet = admin.post("/links/new/", asked | {"intent": "curl"}).content.decode()
    response = admin.post("/links/new/", asked)

    assert response["Location"] == f"/links/{EAST}/fresh/"
    link = ClusterLink.objects.get(name="fresh")
    assert (link.mode, link.connection_mode, link.source_cluster_id) == (mode, connection, WEST)
    assert f"&quot;{remote}&quot;: &quot;{WEST}&quot;" in snippet


@pytest.mark.parametrize(("direction", "fields"), FIELDS.items())
def test_form_has_only_the_fields_of_the_direction(admin: Client, direction: str, fields: set[str]) -> None:
    text = admin.get(f"/links/new/?direction={direction}").content.decode()

    asked = {name.removeprefix("field-") for name in re.findall(r'id="(field-[a-z_]+)"', text)}
    assert asked & set().union(*FIELDS.values()) == fields
    assert f'id="direction-{direction}" href="?direction={direction}" aria-current="true"' in text
    assert text.count('href="?direction=') == len(FIELDS)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"direction": "send", "source": ""}, "source", "Choose the other cluster of the link, or select"),
        ({"direction": "accept", "source": ""}, "source", "or register it first"),
        ({"direction": "accept", "source_kind": "other", "source": ""}, "source", "or register it first"),
        ({"direction": "send", "source": EAST}, "source", "Source and destination are the same cluster"),
        ({"direction": "both", "destination": ""}, "destination", "Choose a registered cluster."),
        ({"direction": "send", "name": ""}, "name", "Enter a link name"),
        ({"direction": "both", "connection_mode": "SIDEWAYS"}, "connection_mode", "Select a valid choice."),
        (
            OTHER | {"direction": "both", "connection_mode": "INBOUND"},
            "connection_mode",
            "Register the other cluster and choose it above",
        ),
    ],
)
def test_invalid_value_for_a_direction_is_reported_at_the_field(
    admin: Client, change: dict[str, str], field: str, words: str
) -> None:
    response = admin.post("/links/new/", REGISTERED | change)

    assert response.status_code == 422
    beside = response.content.decode().split(f'id="{field}_error"')[1].split("</div>")[0]
    assert words in beside
    assert not ClusterLink.objects.filter(name="fresh").exists()


@pytest.mark.parametrize("code", [ErrorCode.AUTHENTICATION_ERROR, ErrorCode.CLUSTER_ID_MISMATCH, ErrorCode.TIMEOUT_ERROR])
def test_error_of_a_registered_cluster_is_shown_at_the_cluster_list(admin: Client, queue: Queue, code: ErrorCode) -> None:
    queue.answer = LinkEngineError(code, "us-west says no.")

    text = admin.post("/links/new/", REGISTERED | {"direction": "send"}).content.decode()

    beside = text.split('id="source_error"')[1].split("</div>")[0]
    assert "us-west says no." in beside
    assert code in beside


def test_missing_worker_is_reported_above_the_form(admin: Client, queue: Queue) -> None:
    queue.answer = UnavailableError("No worker answers.", code="WORKER_UNAVAILABLE")

    response = admin.post("/links/new/", REGISTERED)

    assert response.status_code == 422
    assert "No worker answers." in response.content.decode()


# direction of the first link, direction of the paired link, the values shown for it
PAIRS = [
    ("send", "accept", {"link.mode": DESTINATION, "connection.mode": "INBOUND", "source_cluster_id": EAST}),
    ("accept", "send", {"link.mode": SOURCE, "connection.mode": "OUTBOUND", "destination_cluster_id": EAST}),
    ("both", "both", {"link.mode": BIDIRECTIONAL, "connection.mode": "OUTBOUND", "remote_cluster_id": EAST}),
]


@pytest.mark.parametrize(("first", "second", "values"), PAIRS)
def test_link_page_leads_to_the_creation_of_its_paired_link(
    admin: Client, reader: Client, first: str, second: str, values: dict[str, str]
) -> None:
    admin.post("/links/new/", REGISTERED | {"direction": first})
    overview = admin.get(f"/links/{EAST}/fresh/").content.decode()
    for name, value in (values | {"link name": "fresh"}).items():
        assert f'<dt>{name}</dt><dd class="mono name">{value}</dd>' in overview
    address = overview.split('id="create-other-side" href="')[1].split('"')[0].replace("&amp;", "&")
    assert address.startswith(f"/links/new/?direction={second}&")
    assert "create-other-side" not in reader.get(f"/links/{EAST}/fresh/").content.decode()

    form = admin.get(address).content.decode()
    assert f'<option value="{WEST}" selected>' in form.split('id="field-destination"')[1]
    assert f'<option value="{EAST}" selected>' in form.split('id="field-source"')[1]
    assert 'name="name" value="fresh"' in form
    other = {"direction": second, "destination": WEST, "source": EAST}
    admin.post("/links/new/", REGISTERED | other)

    for here, there in ((EAST, WEST), (WEST, EAST)):
        overview = admin.get(f"/links/{here}/fresh/").content.decode()
        assert f'id="open-other-side" href="/links/{there}/fresh/"' in overview
        assert "create-other-side" not in overview


def test_source_side_link_offers_no_mirror_topics(admin: Client) -> None:
    admin.post("/links/new/", REGISTERED | {"direction": "send"})

    text = admin.get(f"/links/{EAST}/fresh/").content.decode()

    assert "from us-east to us-west" in text
    assert "add-mirror" not in text
    assert 'id="mirrors-title"' not in text


def test_one_way_link_has_no_paired_link(scene: Scene, admin: Client) -> None:
    assert 'id="other-side"' not in admin.get(scene.link_url).content.decode()


EVERYTHING = '[{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]'


def test_create_form_turns_on_auto_create_offset_sync_and_acl_sync(admin: Client) -> None:
    admin.post("/links/new/", REGISTERED | {"auto_create": "on", "sync_offsets": "on", "sync_acls": "on"})

    link = ClusterLink.objects.get(name="fresh")
    assert link.config("auto.create.mirror.topics.enable") == "true"
    assert link.config("auto.create.mirror.topics.filters") == f'{{"topicFilters": {EVERYTHING}}}'
    assert link.config("consumer.offset.sync.enable") == "true"
    assert link.config("consumer.offset.group.filters") == f'{{"groupFilters": {EVERYTHING}}}'
    assert link.config("acl.sync.enable") == "true"
    assert "Mirror topics are created automatically within five minutes." in admin.get(f"/links/{EAST}/fresh/").content.decode()


def test_create_form_turns_nothing_on_by_default(admin: Client) -> None:
    admin.post("/links/new/", REGISTERED)

    assert not ClusterLink.objects.get(name="fresh").configs.exists()


def test_acl_sync_with_a_prefix_is_rejected(admin: Client) -> None:
    answer = admin.post("/links/new/", REGISTERED | {"sync_acls": "on", "topic_prefix": "west."})

    assert answer.status_code == 422
    assert "ACL sync is not available with a prefix" in answer.content.decode()
    assert not ClusterLink.objects.filter(name="fresh").exists()


def test_source_side_form_has_no_sync_options(admin: Client) -> None:
    assert 'id="field-auto_create"' in admin.get("/links/new/?direction=accept").content.decode()
    assert 'id="field-auto_create"' not in admin.get("/links/new/?direction=send").content.decode()


def test_create_page_without_visible_clusters_says_what_to_do_first(scene: Scene) -> None:
    for model in (MirrorTopic, ClusterLink, Cluster):
        model.objects.all().delete()

    for user, words in ((scene.admin, "Register a cluster first"), (scene.stranger, "No clusters</h2>")):
        text = client_of(user).get("/links/new/").content.decode()
        assert words in text
        assert 'id="destination"' not in text
