"""Creating a cluster link in steps: the fields of each step, what it stores and shows, and the link at the end."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from console.errors import UnavailableError
from console.links.drafts import KEEP_DRAFTS, DraftValues, values_of
from console.models import Cluster, ClusterLink, LinkDraft, MirrorTopic, Namespace, RoleBinding, SourceTopic
from console.models.fields import seal
from linkengine.domain.acls import Acl
from linkengine.domain.clusterviews import SourceListing
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Group
from linkengine.domain.mirrorability import ListedTopic
from tests.browser.page_data import EAST, WEST, PageData
from tests.console.pages.conftest import Queue, check, client_of, hidden_in, htmx, states_in_headlines

DESTINATION, SOURCE, BIDIRECTIONAL = "DESTINATION", "SOURCE", "BIDIRECTIONAL"
REGISTERED = {"other_kind": "registered", "other": WEST}
OTHER = {
    "other_kind": "other",
    "bootstrap_servers": "far.example:9093",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "link",
    "password": "s3cret-word",
}
OWN = {"own": EAST}
OWN_FIRST = {"send", "both"}
ACL = Acl(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="LITERAL",
    principal="User:app",
    host="*",
    operation="READ",
    permission="ALLOW",
)
LISTING = SourceListing(
    topics=(
        ListedTopic(name="__consumer_offsets", internal=True),
        ListedTopic(name="planes"),  # the destination has a mirror topic of this name
        ListedTopic(name="receipts"),
        ListedTopic(name="receipts.audit"),
        ListedTopic(name="radar"),
    ),
    groups=(Group(name="billing", kind="classic"), Group(name="shared", kind="share"), Group(name="test", kind="consumer")),
    acls=(ACL,),
)


def begin(client: Client, direction: str = "receive", *, preset: str = "custom", **more: str) -> str:
    """Start a draft; return the URL before the name of a step."""
    response = client.post("/links/new/", {"direction": direction, "preset": preset} | more)
    assert response.status_code == 302, response.content.decode()
    return str(response["Location"]).removesuffix("source/")


def choose_clusters(client: Client, draft: str, direction: str = "receive", *, other: dict[str, str] | None = None) -> None:
    """Fill in the first two steps."""
    own = OWN | ({"connection_mode": "OUTBOUND"} if direction == "both" else {})
    clusters = [own, other or REGISTERED] if direction in OWN_FIRST else [other or REGISTERED, own]
    for step, values in zip(("source", "destination"), clusters, strict=True):
        response = client.post(f"{draft}{step}/", values)
        assert response.status_code == 302, response.content.decode()


def launch(client: Client, draft: str, *, name: str = "fresh", intent: str = "create") -> Any:
    return client.post(f"{draft}review/", {"name": name, "intent": intent})


def configure(client: Client, draft: str, values: dict[str, str], *, intent: str = "next", **more: Any) -> Any:
    """Submit the configuration with the rows that the page shows."""
    page = client.get(f"{draft}configuration/")
    shown = hidden_in(page) | _rows_in(page.content.decode())
    return client.post(f"{draft}configuration/", shown | values | {"intent": intent}, **more)


def _rows_in(page: str) -> dict[str, str]:
    """Return the filters that a page shows: their text fields and the selected options."""
    texts = re.findall(r'<input type="text" name="((?:topics|groups|acls)-[^"]+)"(?: value="([^"]*)")?', page)
    lists = re.findall(r'<select name="((?:topics|groups|acls)-[^"]+)".*?<option value="([^"]*)" selected>', page, re.DOTALL)
    return dict(texts) | dict(lists)


def test_purpose_and_steps_lead_to_the_link(admin: Client, queue: Queue) -> None:
    draft = begin(admin, preset="recovery")

    steps = [
        admin.post(f"{draft}source/", REGISTERED | {"intent": "next"})["Location"],
        admin.post(f"{draft}destination/", OWN | {"intent": "next"})["Location"],
        configure(admin, draft, {"auto_create": "on", "sync_offsets": "on", "sync_acls": "on"})["Location"],
    ]
    created = launch(admin, draft)

    assert steps == [f"{draft}destination/", f"{draft}configuration/", f"{draft}review/"]
    assert created["Location"] == f"/links/{EAST}/fresh/"
    link = ClusterLink.objects.get(name="fresh")
    assert link.source is not None
    assert link.source.cluster_id == WEST
    assert queue.called == ["check_link"]
    for name in ("auto.create.mirror.topics.enable", "consumer.offset.sync.enable", "acl.sync.enable"):
        assert link.config(name) == "true"
    assert '"name": "*"' in link.config("auto.create.mirror.topics.filters")
    assert "Mirror topics are created automatically within five minutes." in admin.get(created["Location"]).content.decode()
    assert not LinkDraft.objects.filter(user__username="amelia").exclude(pk=90_001).exists()


# direction, additional values of the own cluster's step, link.mode, connection.mode, name of the other cluster in REST
DIRECTIONS = [
    ("receive", DESTINATION, "OUTBOUND", "source_cluster_id"),
    ("send", SOURCE, "OUTBOUND", "destination_cluster_id"),
    ("accept", DESTINATION, "INBOUND", "source_cluster_id"),
    ("both", BIDIRECTIONAL, "OUTBOUND", "remote_cluster_id"),
]


@pytest.mark.parametrize(("direction", "mode", "connection", "remote"), DIRECTIONS)
def test_direction_sets_link_mode_and_connection_mode(
    admin: Client, direction: str, mode: str, connection: str, remote: str
) -> None:
    draft = begin(admin, direction)
    choose_clusters(admin, draft, direction)

    launch(admin, draft, intent="commands")
    review = admin.get(f"{draft}review/").content.decode()
    response = launch(admin, draft)

    assert response["Location"] == f"/links/{EAST}/fresh/"
    link = ClusterLink.objects.get(name="fresh")
    assert (link.mode, link.connection_mode, link.source_cluster_id) == (mode, connection, WEST)
    assert f"&quot;{remote}&quot;: &quot;{WEST}&quot;" in review


def test_bidirectional_link_can_be_inbound(admin: Client) -> None:
    draft = begin(admin, "both")
    admin.post(f"{draft}source/", OWN | {"connection_mode": "INBOUND"})
    refused = admin.post(f"{draft}destination/", OTHER)
    admin.post(f"{draft}destination/", REGISTERED)

    launch(admin, draft)

    assert (refused.status_code, "Inbound requires a registered cluster" in refused.content.decode()) == (422, True)
    assert ClusterLink.objects.get(name="fresh").connection_mode == "INBOUND"


def test_source_side_has_no_configuration_step(admin: Client) -> None:
    draft = begin(admin, "send", preset="recovery")
    choose_clusters(admin, draft, "send")

    assert f'href="{draft}configuration/"' not in admin.get(f"{draft}review/").content.decode()
    assert admin.get(f"{draft}configuration/").status_code == 404
    launch(admin, draft)
    assert not ClusterLink.objects.get(name="fresh").configs.exclude(name="link.mode").filter(name__contains="sync").exists()


def test_steps_keep_what_was_entered(admin: Client) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft, other=OTHER | {"other_cluster_id": "far"})
    configure(admin, draft, {"add_prefix": "on", "prefix": "far."})

    source, own = (admin.get(f"{draft}{step}/").content.decode() for step in ("source", "destination"))
    configuration = admin.get(f"{draft}configuration/").content.decode()

    assert 'value="far.example:9093"' in source
    assert 'value="far"' in source
    assert f'<option value="{EAST}" selected>' in own
    assert 'value="far."' in configuration


@pytest.mark.parametrize("step", ["destination", "configuration"])
def test_back_stores_the_step_and_leads_to_the_previous_one(admin: Client, step: str) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft)

    if step == "destination":
        response = admin.post(f"{draft}destination/", {"own": "", "intent": "back"})  # not valid, and not stored
        assert response["Location"] == f"{draft}source/"
        assert values_of(LinkDraft.objects.get(pk=_id_of(draft))).own == EAST
    else:
        response = configure(admin, draft, {"add_prefix": "on", "prefix": "w."}, intent="back")
        assert response["Location"] == f"{draft}destination/"
        assert values_of(LinkDraft.objects.get(pk=_id_of(draft))).prefix == "w."


def _id_of(draft: str) -> int:
    return int(draft.split("/")[-2])


@pytest.mark.parametrize("step", ["source", "destination", "configuration", "review"])
def test_secrets_are_kept_and_shown_on_no_step(admin: Client, step: str) -> None:
    draft = begin(admin)
    secrets = {"certificate_pem": "THE CERTIFICATE", "key_pem": "THE KEY", "key_password": "key-word"}
    choose_clusters(admin, draft, other=OTHER | secrets)
    launch(admin, draft, intent="commands")

    text = admin.get(f"{draft}{step}/").content.decode()

    for secret in ("s3cret-word", "THE CERTIFICATE", "THE KEY", "key-word"):
        assert secret not in text
    admin.post(f"{draft}source/", OTHER | {"password": "", "username": "renamed"})
    launch(admin, draft)
    properties = ClusterLink.objects.get(name="fresh").properties
    assert 'username="renamed" password="s3cret-word"' in properties["sasl.jaas.config"]
    assert properties["ssl.keystore.key"] == "THE KEY"


def test_stored_secret_is_not_sent_to_another_address(admin: Client, queue: Queue) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft, other=OTHER)

    moved = OTHER | {"bootstrap_servers": "elsewhere.example:9093", "password": "", "intent": "test"}
    response = admin.post(f"{draft}source/", moved)

    assert response.status_code == 422
    assert "the stored one would be sent elsewhere" in response.content.decode().split('id="password_error"')[1]
    assert queue.called == []


def test_connection_test_shows_a_checklist_that_is_kept(admin: Client, queue: Queue) -> None:
    queue.response = [
        check("DNS"),
        check("TCP", status="FAILED", finding="No broker listens there.", fix="Check the port.", error_code="TIMEOUT_ERROR"),
        check("TLS", status="NOT_TESTED", finding="Not tested."),
    ]
    draft = begin(admin)

    response = admin.post(f"{draft}source/", OTHER | {"intent": "test"})
    texts = [admin.get(f"{draft}source/").content.decode() for _ in range(2)]

    assert response["Location"] == f"{draft}source/#checklist"
    assert queue.called == ["check_connection"]
    for text in texts:
        assert "Connection test failed." in text
        assert "No broker listens there." in text
        assert "Check the port." in text
        assert "TIMEOUT_ERROR" in text
        assert "s3cret-word" not in text
    assert "Connection test failed" in admin.get(f"{draft}review/").content.decode()


def test_checklist_disappears_when_the_connection_changes(admin: Client, queue: Queue) -> None:
    queue.response = [check("DNS")]
    draft = begin(admin)
    admin.post(f"{draft}source/", OTHER | {"intent": "test"})

    admin.post(f"{draft}source/", OTHER | {"username": "another"})

    assert 'id="checklist"' not in admin.get(f"{draft}source/").content.decode()
    assert "Not tested" in admin.get(f"{draft}review/").content.decode()


@pytest.mark.parametrize(("step", "values"), [("source", OTHER), ("destination", OWN)])
def test_missing_worker_is_reported_above_the_form(admin: Client, queue: Queue, step: str, values: dict[str, str]) -> None:
    queue.response = UnavailableError("No worker responds.", code="WORKER_UNAVAILABLE")
    draft = begin(admin)

    response = admin.post(f"{draft}{step}/", values | {"intent": "test"})

    assert response.status_code == 422
    assert "No worker responds." in response.content.decode()


def test_source_is_listed_and_the_filters_are_counted(page_data: PageData, admin: Client, queue: Queue) -> None:
    queue.response = seal(LISTING.to_json())
    draft = begin(admin, preset="recovery")
    choose_clusters(admin, draft)
    switches = {"auto_create": "on", "sync_offsets": "on", "sync_acls": "on"}

    before = admin.get(f"{draft}configuration/").content.decode()
    response = configure(admin, draft, switches, intent="list")
    text = admin.get(f"{draft}configuration/").content.decode()

    assert "has not been listed yet" in before
    assert response["Location"] == f"{draft}configuration/#preview-title"
    assert queue.called == ["list_source"]
    assert "Mirror topics are created for 3 of 5 source topics. Not included: 1 internal, 1 mirrored by another link." in text
    assert "receipts, receipts.audit, radar" in text
    assert "Synced: 2 of 3 consumer groups. Not included: 1 of a type that is not synced (share, streams)." in text
    assert "Synced: 1 of 1 ACL." in text


def test_preview_counts_changed_filters_and_stores_nothing(page_data: PageData, admin: Client, queue: Queue) -> None:
    queue.response = seal(LISTING.to_json())
    draft = begin(admin, preset="migrate")
    choose_clusters(admin, draft)
    configure(admin, draft, {"auto_create": "on"}, intent="list")
    stored = LinkDraft.objects.get(pk=_id_of(draft)).updated_at
    queue.called.clear()
    place = {"cluster": page_data.east, "created_at": page_data.now}
    Namespace.objects.create(prefix="w.rad", reserved=True, created_by="owner", **place)
    SourceTopic.objects.create(cluster=page_data.east, name="w.receipts", partitions=1, seen_at=page_data.now)
    changed = {
        "auto_create": "on",
        "add_prefix": "on",
        "prefix": "w.",
        "topics-1-name": "receipts.audit",
        "topics-1-pattern": "LITERAL",
        "topics-1-kind": "EXCLUDE",
    }

    whole = configure(admin, draft, changed, intent="preview")
    part = configure(admin, draft, changed, intent="preview", **htmx("preview"))

    for response in (whole, part):
        text = response.content.decode()
        assert response.status_code == 200
        assert "Mirror topics are created for 1 of 5 source topics." in text
        assert "1 internal, 1 excluded, 1 already on the destination, 1 in a reserved namespace" in text
        assert "w.planes" in text
    assert "<html" in whole.content.decode()
    assert "<html" not in part.content.decode()
    assert queue.called == []  # the stored list is counted; no cluster is contacted
    draft_row = LinkDraft.objects.get(pk=_id_of(draft))
    assert (draft_row.updated_at, values_of(draft_row).prefix) == (stored, "")


def test_preview_of_invalid_filters_has_no_counts(admin: Client, queue: Queue) -> None:
    queue.response = seal(LISTING.to_json())
    draft = begin(admin, preset="migrate")
    choose_clusters(admin, draft)
    configure(admin, draft, {"auto_create": "on"}, intent="list")

    response = configure(
        admin, draft, {"auto_create": "on", "topics-0-pattern": "PREFIXED"}, intent="preview", **htmx("preview")
    )

    assert response.status_code == 422
    assert "correct the fields above first" in response.content.decode()
    assert "of 5" not in response.content.decode()


def test_list_that_may_not_be_read_is_unknown_with_the_reason(admin: Client, queue: Queue) -> None:
    unknown = SourceListing(topics=(), errors={"groups": "Broker 1 is silent.", "acls": "You may not DESCRIBE the cluster."})
    queue.response = seal(unknown.to_json())
    draft = begin(admin, preset="recovery")
    choose_clusters(admin, draft)

    configure(admin, draft, {"sync_offsets": "on", "sync_acls": "on"}, intent="list")
    text = admin.get(f"{draft}configuration/").content.decode()

    assert "Unknown. Broker 1 is silent." in text
    assert "Unknown. You may not DESCRIBE the cluster." in text


def test_list_is_not_shown_to_a_user_who_may_not_use_the_credentials_any_more(page_data: PageData, queue: Queue) -> None:
    operator = User.objects.create_user("olga")
    for role, cluster in (("CloudClusterAdmin", page_data.west), ("CloudClusterAdmin", page_data.east)):
        facts = {"granted_at": page_data.now, "granted_by": "test"}
        RoleBinding.objects.create(user=operator, role=role, cluster=cluster, **facts)
    queue.response = seal(LISTING.to_json())
    draft = begin(client_of(operator), preset="migrate")
    choose_clusters(client_of(operator), draft)
    configure(client_of(operator), draft, {"sync_offsets": "on"}, intent="list")
    before = client_of(operator).get(f"{draft}configuration/").content.decode()

    RoleBinding.objects.filter(user=operator, cluster=page_data.west).update(role="ResourceOwner")
    after = client_of(operator).get(f"{draft}configuration/").content.decode()

    assert "billing" in before
    assert "billing" not in after
    assert "has not been listed yet" in after


def test_error_of_the_list_names_the_step_that_corrects_it(admin: Client, queue: Queue) -> None:
    queue.response = LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "The source refused user 'link'.")
    draft = begin(admin, preset="migrate")
    choose_clusters(admin, draft, other=OTHER)

    response = configure(admin, draft, {"auto_create": "on"}, intent="list")

    assert response.status_code == 422
    assert "The source refused user &#x27;link&#x27;." in response.content.decode()
    assert f'<a href="{draft}source/">Go to step Source cluster</a>' in response.content.decode()


@pytest.mark.parametrize("code", [ErrorCode.AUTHENTICATION_ERROR, ErrorCode.CLUSTER_ID_MISMATCH, ErrorCode.TIMEOUT_ERROR])
@pytest.mark.parametrize("other", [REGISTERED, OTHER])
def test_refused_creation_names_the_step_that_corrects_it(
    admin: Client, queue: Queue, code: ErrorCode, other: dict[str, str]
) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft, other=other)
    queue.response = LinkEngineError(code, "50% sure this is wrong.")

    response = launch(admin, draft)
    text = response.content.decode()

    assert response.status_code == 422
    assert "50% sure this is wrong." in text
    assert code in text
    assert f'<a href="{draft}source/">Go to step Source cluster</a>' in text
    assert "s3cret-word" not in text
    assert not ClusterLink.objects.filter(name="fresh").exists()


@pytest.mark.parametrize(
    ("name", "words"), [("no spaces allowed", "letters, digits"), ("west-to-east", "already exists"), ("", "Enter a link name")]
)
def test_invalid_name_is_reported_at_its_field(admin: Client, name: str, words: str) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft)

    response = launch(admin, draft, name=name)

    assert response.status_code in (409, 422)
    assert words in response.content.decode().split('id="name_error"')[1].split("</div>")[0]


def test_incomplete_draft_cannot_be_created_and_lists_what_is_missing(admin: Client) -> None:
    draft = begin(admin)

    text = admin.get(f"{draft}review/").content.decode()
    response = launch(admin, draft)

    assert "Source cluster is missing." in text
    assert "Destination cluster is missing." in text
    assert response.status_code == 422
    assert not ClusterLink.objects.filter(name="fresh").exists()


def test_validate_only_stores_no_link_and_shows_round_trips(admin: Client, queue: Queue) -> None:
    far = {"round_trip_ms": 80.5, "send_buffer_bytes": 102_400, "receive_buffer_bytes": 6_291_456}
    queue.response = {
        "cluster_id": WEST,
        "distances": [
            {"broker": 1, "address": "far.test:9092", **far},
            {"broker": 2, "address": "near.test:9092", "round_trip_ms": 0.4},
            {"broker": 3, "address": "gone.test:9092", "error": "Broker gone.test:9092 accepts no connection."},
        ],
    }
    draft = begin(admin)
    choose_clusters(admin, draft)

    text = launch(admin, draft, intent="validate").content.decode()

    assert "Validation successful." in text
    assert "80.5 ms" in text
    assert "Limited by socket.send.buffer.bytes = 102,400 of the broker: about 1.21 MiB/s per connection" in text
    assert "Not limited by socket buffers: the round trip is short." in text
    assert "Broker gone.test:9092 accepts no connection." in text
    assert not ClusterLink.objects.filter(name="fresh").exists()
    assert LinkDraft.objects.filter(pk=_id_of(draft)).exists()


def test_commands_are_shown_once_the_draft_is_complete(admin: Client, queue: Queue) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft, other=OTHER)

    before = admin.get(f"{draft}review/").content.decode()
    launch(admin, draft, intent="commands")
    text = admin.get(f"{draft}review/").content.decode()

    assert 'id="command-curl"' not in before
    for key in ("curl", "linkctl", "terraform"):
        assert f'id="command-{key}"' in text
    assert f"http://testserver/kafka/v3/clusters/{EAST}/links?link_name=fresh" in text
    assert "SASL_PASSWORD" in text
    assert "s3cret-word" not in text
    assert queue.called == []


def test_acl_sync_with_a_prefix_is_rejected(admin: Client) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft)

    response = configure(admin, draft, {"sync_acls": "on", "add_prefix": "on", "prefix": "west."})

    assert response.status_code == 422
    assert "ACL sync is not available with a prefix" in response.content.decode()


def test_draft_belongs_to_its_user(page_data: PageData, admin: Client, reader: Client) -> None:
    draft = begin(admin)
    other_admin = User.objects.create_superuser("dora")

    for client in (reader, client_of(other_admin)):
        for step in ("source", "destination", "configuration", "review"):
            assert client.get(f"{draft}{step}/").status_code == 404
            assert client.post(f"{draft}{step}/", OTHER | OWN | {"name": "stolen"}).status_code == 404
        assert client.post(f"{draft}discard/").status_code == 404
        assert draft not in client.get("/links/new/").content.decode()
    assert draft in admin.get("/links/new/").content.decode()


def test_drafts_without_a_name_are_called_by_their_clusters(admin: Client) -> None:
    begin(admin)
    chosen = begin(admin)
    choose_clusters(admin, chosen)

    titles = re.findall(
        r'<th scope="row" class="name"><a href="([^"]*)">([^<]*)</a>', admin.get("/links/new/").content.decode()
    )

    assert sorted(title for _, title in titles) == ["Unnamed link", "far-to-east", "us-west to us-east"]


def test_configuration_has_its_tick_once_it_was_stored(admin: Client) -> None:
    draft = begin(admin, preset="recovery")
    choose_clusters(admin, draft)
    assert admin.get(f"{draft}review/").content.decode().count("(chosen)") == 2

    assert configure(admin, draft, {}).status_code == 302

    assert admin.get(f"{draft}review/").content.decode().count("(chosen)") == 3


def test_discarded_and_expired_drafts_are_gone(admin: Client) -> None:
    discarded, expired = begin(admin), begin(admin)

    admin.post(f"{discarded}discard/")
    rows = LinkDraft.objects.filter(pk=_id_of(expired))
    rows.update(updated_at=rows.get().updated_at - KEEP_DRAFTS - timedelta(minutes=1))

    for draft in (discarded, expired):
        assert admin.get(f"{draft}source/").status_code == 404
        assert draft not in admin.get("/links/new/").content.decode()


def test_user_who_may_manage_no_links_cannot_start_and_tests_nothing(reader: Client, queue: Queue) -> None:
    response = reader.post("/links/new/", {"direction": "receive", "preset": "custom"})

    assert response.status_code == 403
    assert "ResourceOwner" in response.content.decode()
    assert queue.called == []


def test_purpose_preselects_the_switches(admin: Client) -> None:
    draft = begin(admin, preset="share")

    text = admin.get(f"{draft}configuration/").content.decode()

    checked = set(re.findall(r'<input type="checkbox" name="([a-z_]+)"[^>]* checked', text))
    assert checked == {"auto_create", "add_prefix"}


def test_name_of_the_source_is_suggested_as_prefix(admin: Client) -> None:
    draft = begin(admin, preset="aggregate")
    choose_clusters(admin, draft)

    assert 'name="prefix" value="us-west."' in admin.get(f"{draft}configuration/").content.decode()


@pytest.mark.parametrize(
    ("direction", "name"), [("receive", "us-west-to-us-east"), ("send", "us-east-to-us-west"), ("both", "")]
)
def test_names_of_the_clusters_are_suggested_as_link_name(admin: Client, direction: str, name: str) -> None:
    draft = begin(admin, direction)
    choose_clusters(admin, draft, direction)

    assert _name_in(admin.get(f"{draft}review/")) == name
    assert values_of(LinkDraft.objects.get(pk=int(draft.split("/")[-2]))).name == ""


def test_name_is_not_suggested_if_it_is_taken_or_no_valid_name(admin: Client, page_data: PageData) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(name="us-west-to-us-east")
    assert _name_in(admin.get(f"{draft}review/")) == ""

    ClusterLink.objects.filter(pk=page_data.link.pk).update(name="west-to-east")
    Cluster.objects.filter(cluster_id=WEST).update(name="US west")
    assert _name_in(admin.get(f"{draft}review/")) == ""


def test_rejected_name_is_not_replaced_by_a_suggestion(admin: Client) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft)

    page = launch(admin, draft, name="")

    assert page.status_code == 422
    assert _name_in(page) == ""


def _name_in(page: Any) -> str:
    found = re.search(r'<input type="text" name="name"(?: value="([^"]*)")?', page.content.decode())
    assert found is not None
    return found[1] or ""


# direction of the first link, direction of the paired link, the values shown for it
PAIRS = [
    ("send", "accept", {"link.mode": DESTINATION, "connection.mode": "INBOUND", "source_cluster_id": EAST}),
    ("accept", "send", {"link.mode": SOURCE, "connection.mode": "OUTBOUND", "destination_cluster_id": EAST}),
    ("both", "both", {"link.mode": BIDIRECTIONAL, "connection.mode": "OUTBOUND", "remote_cluster_id": EAST}),
]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("first", "second", "values"), PAIRS)
def test_link_page_leads_to_the_creation_of_its_paired_link(
    admin: Client, reader: Client, first: str, second: str, values: dict[str, str]
) -> None:
    draft = begin(admin, first)
    choose_clusters(admin, draft, first)
    launch(admin, draft)
    overview = admin.get(f"/links/{EAST}/fresh/").content.decode()
    for name, value in (values | {"link name": "fresh"}).items():
        assert f'<dt>{name}</dt><dd class="mono name">{value}</dd>' in overview
    address = overview.split('id="create-other-side" href="')[1].split('"')[0].replace("&amp;", "&")
    assert address.startswith(f"/links/new/?direction={second}&")
    assert "create-other-side" not in reader.get(f"/links/{EAST}/fresh/").content.decode()

    start = admin.get(address)
    assert f'id="direction-{second}" value="{second}" checked' in start.content.decode()
    prefilled = hidden_in(start)
    assert (prefilled["own"], prefilled["other"], prefilled["name"]) == (WEST, EAST, "fresh")
    names = ("own", "other", "name")
    paired = begin(admin, second, **{name: prefilled[name] for name in names})
    launch(admin, paired)

    for here, there in ((EAST, WEST), (WEST, EAST)):
        response = admin.get(f"/links/{here}/fresh/")
        overview = response.content.decode()
        assert f'id="open-other-side" href="/links/{there}/fresh/"' in overview
        assert "create-other-side" not in overview
        assert not states_in_headlines(response)


def test_source_side_link_offers_no_mirror_topics(admin: Client) -> None:
    draft = begin(admin, "send")
    choose_clusters(admin, draft, "send")
    launch(admin, draft)

    text = admin.get(f"/links/{EAST}/fresh/").content.decode()

    assert "from us-east to us-west" in text
    assert "add-mirror" not in text
    assert 'id="mirrors-title"' not in text


def test_one_way_link_has_no_paired_link(page_data: PageData, admin: Client) -> None:
    assert 'id="other-side"' not in admin.get(page_data.link_url).content.decode()


def test_custom_purpose_turns_nothing_on(admin: Client) -> None:
    draft = begin(admin)
    choose_clusters(admin, draft)
    launch(admin, draft)

    assert not ClusterLink.objects.get(name="fresh").configs.exists()


def test_unknown_direction_in_the_query_is_ignored(admin: Client) -> None:
    assert 'value="receive" checked' in admin.get("/links/new/?direction=nonsense").content.decode()
    assert admin.post("/links/new/", {"direction": "nonsense", "preset": "custom"}).status_code == 422


def test_create_page_without_visible_clusters_names_the_first_step(page_data: PageData) -> None:
    for model in (MirrorTopic, ClusterLink, Cluster):
        model.objects.all().delete()

    for user, words in ((page_data.admin, "Register a cluster first"), (page_data.stranger, "No clusters</h2>")):
        text = client_of(user).get("/links/new/").content.decode()
        assert words in text
        assert 'name="direction"' not in text


def test_drafts_share_no_values() -> None:
    assert DraftValues().connection is not DraftValues().connection
