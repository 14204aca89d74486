from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.models import Cluster, ClusterLink, LinkConfig, MirrorTopic, RoleBinding
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import properties_of
from linkengine.domain.states import LinkState, MirrorState
from tests.browser.page_data import EAST, SECRET, PageData
from tests.console.pages.conftest import post_form


def test_edit_keeps_sasl_extensions(page_data: PageData, admin: Client) -> None:
    oauth = ClusterAddress(
        bootstrap_servers="far.example:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_username="link",
        sasl_password="s3cret-word",
        oauth_token_url="https://tokens.example/token",
        oauth_scope="kafka",
        oauth_extensions=(("pool", "x"),),
    )
    link = ClusterLink.objects.get(pk=page_data.link.pk)
    link.properties = properties_of(oauth)
    link.save()
    address = f"{page_data.link_url}configuration/edit/"
    edited = {
        "bootstrap_servers": "far.example:9093",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "username": "link",
        "password": "s3cret-word",
        "token_url": "https://tokens.example/new",
        "token_scope": "kafka",
        "ca_pem": "",
        "intent": "save",
    }

    shown = admin.get(address).content.decode()
    response = post_form(admin, address, edited | {"password": ""})
    assert (response.status_code, "Enter it again." in response.content.decode()) == (422, True)
    post_form(admin, address, edited)

    assert "https://tokens.example/token" in shown
    assert "s3cret-word" not in shown
    link.refresh_from_db()
    assert link.properties["sasl.oauthbearer.token.endpoint.url"] == "https://tokens.example/new"
    jaas = link.properties["sasl.jaas.config"]
    assert 'clientId="link" clientSecret="s3cret-word" scope="kafka" extension_pool="x"' in jaas


def _edited(page_data: PageData, **changes: str) -> dict[str, str]:
    values = {
        "bootstrap_servers": page_data.west.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": "link",
        "password": "",
        "ca_pem": "",
        "intent": "save",
    }
    return values | changes


def test_empty_password_keeps_the_stored_one(page_data: PageData, admin: Client) -> None:
    post_form(admin, f"{page_data.link_url}configuration/edit/", _edited(page_data, username="other", paused="on"))

    page_data.link.refresh_from_db()
    assert 'username="other"' in page_data.link.properties["sasl.jaas.config"]
    assert SECRET in page_data.link.properties["sasl.jaas.config"]


@pytest.mark.parametrize(
    "change",
    [
        {"bootstrap_servers": "new.example:9092"},
        {"sasl_mechanism": "PLAIN"},
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "SASL_SSL", "ca_pem": "-----BEGIN CERTIFICATE-----"},
        {"sasl_mechanism": "OAUTHBEARER", "token_url": "https://elsewhere.example/"},
        {"bootstrap_servers": "new.example:9092", "sasl_mechanism": "PLAIN", "username": "other"},
    ],
)
@pytest.mark.parametrize("intent", ["save", "validate"])
def test_new_address_or_security_requires_the_password_again(
    page_data: PageData, admin: Client, change: dict[str, str], intent: str
) -> None:
    address, before = f"{page_data.link_url}configuration/edit/", dict(ClusterLink.objects.get(pk=page_data.link.pk).properties)

    response = post_form(admin, address, _edited(page_data, **change, intent=intent))

    assert response.status_code == 422
    beside = response.content.decode().split('id="password_error"')[1].split("</div>")[0]
    assert "the stored one would be sent elsewhere" in beside
    page_data.link.refresh_from_db()
    assert page_data.link.properties == before

    assert post_form(admin, address, _edited(page_data, **change, password="typed")).status_code == 302
    page_data.link.refresh_from_db()
    assert SECRET not in str(page_data.link.properties)


CERTIFICATE, KEY = "THE STORED CERTIFICATE", "THE STORED KEY"
MUTUAL = ClusterAddress(
    bootstrap_servers="far.example:9093",
    security_protocol="SSL",
    ssl_ca_pem="AUTHORITY",
    ssl_certificate_pem=CERTIFICATE,
    ssl_key_pem=KEY,
    ssl_key_password="stored-word",
)


@pytest.fixture
def mutual(page_data: PageData) -> PageData:
    """The link signs in with a client certificate. It was created without the types of the stores, which have no effect."""
    link = ClusterLink.objects.get(pk=page_data.link.pk)
    link.properties = {name: value for name, value in properties_of(MUTUAL).items() if not name.endswith(".type")}
    link.save()
    return page_data


def edit_mutual(client: Client, page_data: PageData, **changes: str) -> tuple[Any, dict[str, str], set[str]]:
    """Submit the form; return the response, the stored properties, and the names of the properties that changed."""
    values = {"bootstrap_servers": "far.example:9093", "security_protocol": "SSL", "ca_pem": "AUTHORITY", "intent": "save"}
    before = dict(ClusterLink.objects.get(pk=page_data.link.pk).properties)
    response = post_form(client, f"{page_data.link_url}configuration/edit/", values | changes)
    after = dict(ClusterLink.objects.get(pk=page_data.link.pk).properties)
    return response, after, {name for name in {*before, *after} if before.get(name) != after.get(name)}


def test_empty_fields_keep_the_client_certificate_and_key_and_show_them_nowhere(mutual: PageData, admin: Client) -> None:
    shown = admin.get(f"{mutual.link_url}configuration/edit/").content.decode()
    previewed, _, _ = edit_mutual(admin, mutual, paused="on", certificate_pem="A NEW CERTIFICATE", intent="preview")
    saved, _, changed = edit_mutual(admin, mutual, paused="on")

    for name in ("certificate_pem", "key_pem", "key_password"):
        assert "Leave empty to keep the stored one" in shown.split(f'id="{name}_helptext"')[1].split("</p>")[0]
    assert "2 unsaved changes" in previewed.content.decode()
    assert (saved.status_code, changed) == (302, set())
    for text in (shown, previewed.content.decode()):
        assert not [secret for secret in (CERTIFICATE, KEY, "stored-word", "A NEW CERTIFICATE") if secret in text]


@pytest.mark.parametrize("intent", ["save", "validate"])
def test_new_address_requires_the_key_again(mutual: PageData, admin: Client, intent: str) -> None:
    refused, _, unchanged = edit_mutual(admin, mutual, bootstrap_servers="new.example:9093", intent=intent)
    entered = {"key_pem": KEY, "key_password": "stored-word"}
    saved, properties, changed = edit_mutual(admin, mutual, bootstrap_servers="new.example:9093", **entered)

    assert (refused.status_code, unchanged) == (422, set())
    beside = refused.content.decode().split('id="key_pem_error"')[1].split("</div>")[0]
    assert "With another bootstrap.servers, the stored one would be sent elsewhere." in beside
    assert (saved.status_code, changed) == (302, {"bootstrap.servers"})
    assert properties["bootstrap.servers"] == "new.example:9093"


def test_new_certificate_and_key_replace_the_stored_ones(mutual: PageData, admin: Client) -> None:
    response, properties, changed = edit_mutual(admin, mutual, certificate_pem="NEW CERTIFICATE", key_pem="NEW KEY")

    assert response.status_code == 302
    assert changed == {"ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"}
    assert (properties["ssl.keystore.certificate.chain"], properties["ssl.keystore.key"]) == ("NEW CERTIFICATE", "NEW KEY")
    assert "ssl.key.password" not in properties  # it was that of the former key


def test_renewed_certificate_keeps_the_key(mutual: PageData, admin: Client) -> None:
    response, _, changed = edit_mutual(admin, mutual, certificate_pem="RENEWED CERTIFICATE")

    assert (response.status_code, changed) == (302, {"ssl.keystore.certificate.chain"})


@pytest.mark.parametrize(
    "change",
    [
        {"forget_certificate": "on"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "username": "link", "password": "typed"},
        {"forget_certificate": "on", "bootstrap_servers": "new.example:9093"},
    ],
    ids=["removed", "without TLS", "removed and another address"],
)
def test_client_certificate_is_removed(mutual: PageData, admin: Client, change: dict[str, str]) -> None:
    response, properties, _ = edit_mutual(admin, mutual, **change)

    assert response.status_code == 302
    assert not {"ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"} & set(properties)


def test_key_needs_its_certificate(page_data: PageData, admin: Client) -> None:
    response = post_form(
        admin,
        f"{page_data.link_url}configuration/edit/",
        _edited(page_data, security_protocol="SASL_SSL", password="typed", key_pem="KEY"),
    )

    assert (response.status_code, "A private key needs its client certificate." in response.content.decode()) == (422, True)


@pytest.fixture
def borrower(page_data: PageData) -> PageData:
    """The link uses the registered connection of its source."""
    ClusterLink.objects.filter(pk=page_data.link.pk).update(properties={}, uses_cluster_credentials=True)
    return page_data


def test_registered_password_is_not_copied_to_the_link(borrower: PageData, admin: Client) -> None:
    address, elsewhere = f"{borrower.link_url}configuration/edit/", {"bootstrap_servers": "elsewhere.example:9092"}
    for change in ({"username": "other"}, {"sasl_mechanism": "PLAIN"}, {"username": "other", **elsewhere}):
        response = post_form(admin, address, _edited(borrower, **change))
        assert (response.status_code, "is not used with another user" in response.content.decode()) == (422, True)
    response = post_form(admin, address, _edited(borrower, **elsewhere))
    assert "Registered credentials are sent to registered addresses only." in response.content.decode()
    borrower.link.refresh_from_db()
    assert borrower.link.properties == {}

    post_form(admin, address, _edited(borrower, username="other", password="another-secret", **elsewhere))

    borrower.link.refresh_from_db()
    assert "another-secret" in borrower.link.properties["sasl.jaas.config"]
    assert SECRET not in str(borrower.link.properties)


@pytest.fixture
def mutual_borrower(borrower: PageData) -> PageData:
    """The registered connection of the source, which the link uses, has a client certificate and a password."""
    west = Cluster.objects.get(pk=borrower.west.pk)
    login: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "link",
        "sasl_password": SECRET,
    }
    west.properties = properties_of(replace(MUTUAL, bootstrap_servers=west.bootstrap_servers, **login))
    west.save()
    return borrower


def test_registered_certificate_and_key_are_not_copied_to_the_link(mutual_borrower: PageData, admin: Client) -> None:
    address = f"{mutual_borrower.link_url}configuration/edit/"
    same = _edited(mutual_borrower, security_protocol="SASL_SSL", sasl_mechanism="PLAIN", ca_pem="AUTHORITY")
    own = {"certificate_pem": "OWN CERTIFICATE", "key_pem": "OWN KEY"}

    shown = admin.get(address).content.decode()
    assert post_form(admin, address, same | {"paused": "on"}).status_code == 302
    assert "needs its private key" in post_form(admin, address, same | {"certificate_pem": "OWN"}).content.decode()
    assert "is not used with another user, mechanism or certificate" in post_form(admin, address, same | own).content.decode()
    mutual_borrower.link.refresh_from_db()
    assert mutual_borrower.link.properties == {}

    assert post_form(admin, address, same | own | {"password": "another-secret"}).status_code == 302
    mutual_borrower.link.refresh_from_db()
    properties = mutual_borrower.link.properties
    assert (properties["ssl.keystore.certificate.chain"], properties["ssl.keystore.key"]) == ("OWN CERTIFICATE", "OWN KEY")
    assert "another-secret" in properties["sasl.jaas.config"]
    for text in (shown, str(properties)):
        assert not [secret for secret in (CERTIFICATE, KEY, "stored-word", SECRET) if secret in text]
    assert "forget_certificate" not in shown


@pytest.mark.parametrize("role_at_source", ["", "DeveloperRead", "ResourceOwner"])
def test_edit_page_shows_registered_credentials_only_with_permission(
    borrower: PageData, admin: Client, stranger: Client, role_at_source: str
) -> None:
    place = {"cluster": borrower.link.destination, "resource_type": "ClusterLink", "resource_name": borrower.link.name}
    RoleBinding.objects.create(
        user=borrower.stranger, role="ResourceOwner", granted_at=timezone.now(), granted_by="test", **place
    )
    if role_at_source:
        RoleBinding.objects.create(
            user=borrower.stranger, role=role_at_source, granted_at=timezone.now(), granted_by="test", cluster=borrower.west
        )
    address = f"{borrower.link_url}configuration/edit/"

    assert 'value="link"' in admin.get(address).content.decode()
    assert 'value="link"' not in stranger.get(address).content.decode()
    assert post_form(stranger, address, _edited(borrower)).status_code == 422


def test_new_credentials_are_stored_and_not_shown(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.link_url}configuration/edit/"

    preview = post_form(admin, address, _edited(page_data, password="another-secret", intent="preview")).content.decode()
    post_form(admin, address, _edited(page_data, password="another-secret"))

    assert "changed, hidden" in preview
    assert SECRET not in preview
    assert "another-secret" not in preview
    page_data.link.refresh_from_db()
    assert "another-secret" in page_data.link.properties["sasl.jaas.config"]


def test_preview_and_validation_store_nothing(page_data: PageData, admin: Client) -> None:
    for intent in ("preview", "validate"):
        response = post_form(
            admin,
            f"{page_data.link_url}configuration/edit/",
            _edited(page_data, bootstrap_servers="x.example:1", intent=intent),
        )
        assert "x.example:1" in response.content.decode()

    page_data.link.refresh_from_db()
    assert page_data.link.properties["bootstrap.servers"] == page_data.west.bootstrap_servers


def test_link_is_paused_and_resumed(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.link_url}configuration/edit/"

    post_form(admin, address, _edited(page_data, paused="on"))
    page_data.link.refresh_from_db()
    assert page_data.link.state == LinkState.PAUSED

    post_form(admin, address, _edited(page_data))
    page_data.link.refresh_from_db()
    assert page_data.link.state == LinkState.ACTIVE
    assert LinkConfig.objects.get(link=page_data.link, name="cluster.link.paused").value == "false"


def test_deletion_of_a_link_in_use_lists_its_mirrors(page_data: PageData, admin: Client) -> None:
    response = admin.post(f"{page_data.link_url}delete/", {"confirm": page_data.link.name})

    assert response.status_code == 409
    text = response.content.decode()
    assert "LINK_IN_USE" in text
    assert page_data.mirror_url("flights") in text
    assert "unknown" in text  # the lag of the topic that is being set up


def test_deletion_of_a_link_requires_its_name(page_data: PageData, admin: Client) -> None:
    response = admin.post(f"/links/{EAST}/south-archive/delete/", {"confirm": "something else"})

    assert response.status_code == 422
    assert ClusterLink.objects.filter(name="south-archive").exists()

    admin.post(f"/links/{EAST}/south-archive/delete/", {"confirm": "south-archive"})
    assert not ClusterLink.objects.filter(name="south-archive").exists()


def test_records_behind_an_open_transaction_count_as_at_risk(page_data: PageData, admin: Client) -> None:
    MirrorTopic.objects.exclude(name="journeys").update(state=MirrorState.STOPPED)

    text = admin.get(f"{page_data.link_url}delete/").content.decode()

    assert "Records at risk: <strong>48,731</strong>" in text
    assert "behind an open transaction" in text


def test_forced_deletion_fails_over_the_mirrors(page_data: PageData, admin: Client) -> None:
    admin.post(f"{page_data.link_url}delete/", {"confirm": page_data.link.name, "force": "true"})

    assert set(MirrorTopic.objects.values_list("state", flat=True)) <= {MirrorState.PENDING_STOPPED, MirrorState.STOPPED}


def test_configuration_shows_set_configs_and_hides_secrets(page_data: PageData, admin: Client) -> None:
    text = admin.get(f"{page_data.link_url}configuration/").content.decode()

    assert "sasl.jaas.config" in text
    assert "set, hidden" in text
    assert SECRET not in text
    assert "retry.backoff.ms" not in text
    assert "retry.backoff.ms" in admin.get(f"{page_data.link_url}configuration/?all=1").content.decode()


def test_button_pauses_and_resumes_the_link(page_data: PageData, admin: Client) -> None:
    url = f"{page_data.link_url}pause/"
    assert f'href="{url}"' in admin.get(page_data.link_url).content.decode()

    requested = admin.get(url).content.decode()
    paused = post_form(admin, url, {})
    link = ClusterLink.objects.get(pk=page_data.link.pk)

    assert f"Pause cluster link {page_data.link.name}?" in requested
    assert "for 6 mirror topics" in requested  # the others are paused, failed, stopped or not set up: nothing is copied
    assert (paused["Location"], link.state, link.config("cluster.link.paused")) == (page_data.link_url, "PAUSED", "true")
    assert "Resume link" in admin.get(f"{page_data.link_url}tasks/").content.decode()

    post_form(admin, url, {})
    link = ClusterLink.objects.get(pk=page_data.link.pk)
    assert (link.state, link.config("cluster.link.paused")) == ("ACTIVE", "false")


def test_second_submit_of_the_same_form_does_not_resume_the_link(page_data: PageData, admin: Client) -> None:
    for _ in range(2):
        admin.post(f"{page_data.link_url}pause/", {"paused": "true"})

    assert ClusterLink.objects.get(pk=page_data.link.pk).state == "PAUSED"


def test_reader_has_no_button_and_cannot_pause_the_link(page_data: PageData, reader: Client) -> None:
    assert 'id="pause-link"' not in reader.get(page_data.link_url).content.decode()
    assert reader.post(f"{page_data.link_url}pause/", {"paused": "true"}).status_code == 403
    assert ClusterLink.objects.get(pk=page_data.link.pk).state == "ACTIVE"


def test_source_side_of_a_link_has_no_pause_button(page_data: PageData, admin: Client) -> None:
    ClusterLink.objects.filter(pk=page_data.link.pk).update(mode="SOURCE")

    assert 'id="pause-link"' not in admin.get(page_data.link_url).content.decode()
    assert admin.post(f"{page_data.link_url}pause/", {"paused": "true"}).status_code in {409, 422}
