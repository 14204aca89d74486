from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.access.queries import valid_key
from console.models import ApiKey, AuditEvent, Cluster, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.browser.page_data import SECRET, PageData
from tests.console.pages.conftest import Queue, check, htmx


def test_role_is_granted_on_a_scope(page_data: PageData, admin: Client) -> None:
    place = f"cluster:{page_data.east.pk}"
    values = {"user": page_data.stranger.username, "role": "DeveloperManage", "place": place, "resource_type": "Topic"}

    response = admin.post("/access/new/", values | {"resource_name": "flights", "prefixed": "on"})

    assert response["Location"] == "/access/"
    binding = RoleBinding.objects.get(user=page_data.stranger)
    assert (binding.cluster, binding.resource_name, binding.prefixed) == (page_data.east, "flights", True)
    assert "Topic flights*" in admin.get("/access/").content.decode()


@pytest.mark.parametrize("change", [{"user": ""}, {"role": "Emperor"}, {"place": "cluster:999999"}, {"resource_type": "Topic"}])
def test_invalid_role_binding_shows_the_form_again(page_data: PageData, admin: Client, change: dict[str, str]) -> None:
    values = {"user": page_data.stranger.username, "role": "DeveloperRead", "place": f"cluster:{page_data.east.pk}"} | change

    assert admin.post("/access/new/", values).status_code == 422
    assert not RoleBinding.objects.filter(user=page_data.stranger).exists()


def test_reader_may_not_open_the_grant_form_or_grant(page_data: PageData, reader: Client) -> None:
    values = {"user": page_data.stranger.username, "role": "DeveloperRead", "place": f"cluster:{page_data.east.pk}"}

    for response in (reader.get("/access/new/"), reader.post("/access/new/", values)):
        assert (response.status_code, page_data.stranger.username in response.content.decode()) == (403, False)
    assert not RoleBinding.objects.filter(user=page_data.stranger).exists()
    assert "/access/new/" not in reader.get("/access/").content.decode()


def test_grant_form_suggests_only_users_with_visible_bindings(page_data: PageData, admin: Client, reader: Client) -> None:
    """The owner of a topic sees no list of all users, and grants roles to a user by the exact name."""
    topic = {"cluster": page_data.east, "resource_type": "Topic", "resource_name": "flights"}
    facts = {"granted_at": timezone.now(), "granted_by": "test"}
    RoleBinding.objects.create(user=page_data.reader, role="ResourceOwner", **topic, **facts)
    for client in (reader, admin):
        text = client.get("/access/new/").content.decode()
        assert ('"bessie"' in text, '"charles"' in text) == (True, False)
    assert "amelia" not in reader.get("/access/new/").content.decode()

    RoleBinding.objects.create(user=page_data.stranger, role="DeveloperRead", **topic, **facts)
    assert '"charles"' in reader.get("/access/new/").content.decode()
    User.objects.filter(pk=page_data.admin.pk).update(is_superuser=True)
    User.objects.create(username="dorothy")
    assert '"dorothy"' in admin.get("/access/new/").content.decode()


@pytest.mark.parametrize("name", ["nobody-at-all", "Charles", "gone"])
def test_role_is_granted_only_to_an_active_user_by_exact_name(page_data: PageData, admin: Client, name: str) -> None:
    User.objects.create(username="gone", is_active=False)
    response = admin.post("/access/new/", {"user": name, "role": "DeveloperRead", "place": f"cluster:{page_data.east.pk}"})

    assert response.status_code == 422
    assert "No active user has this name." in response.content.decode().split('id="user_error"')[1]


def test_topic_owner_grants_roles_only_on_that_topic(page_data: PageData, reader: Client) -> None:
    topic = {"resource_type": "Topic", "resource_name": "flights"}
    facts = {"granted_at": timezone.now(), "granted_by": "test"}
    RoleBinding.objects.create(user=page_data.reader, role="ResourceOwner", cluster=page_data.east, **topic, **facts)
    values = {"user": page_data.stranger.username, "role": "DeveloperRead", "place": f"cluster:{page_data.east.pk}"}

    assert reader.post("/access/new/", values).status_code == 403
    assert reader.post("/access/new/", values | topic | {"resource_name": "hotels"}).status_code == 403
    assert reader.post("/access/new/", values | topic)["Location"] == "/access/"
    assert [binding.resource_name for binding in RoleBinding.objects.filter(user=page_data.stranger)] == ["flights"]


def test_role_binding_is_removed_after_confirmation(page_data: PageData, admin: Client) -> None:
    binding = RoleBinding.objects.get(user=page_data.reader)

    assert "bessie" in admin.get(f"/access/{binding.pk}/remove/").content.decode()
    admin.post(f"/access/{binding.pk}/remove/")

    assert not RoleBinding.objects.filter(pk=binding.pk).exists()


def test_reader_may_not_remove_role_bindings(page_data: PageData, reader: Client) -> None:
    binding = RoleBinding.objects.get(user=page_data.admin)

    assert reader.post(f"/access/{binding.pk}/remove/").status_code == 404
    assert RoleBinding.objects.filter(pk=binding.pk).exists()


def test_api_key_secret_is_shown_once(admin: Client) -> None:
    response = admin.post("/access/api-keys/", {"description": "for the pipeline"})

    key = ApiKey.objects.get(description="for the pipeline")
    secret = response.content.decode().split('aria-label="secret">')[1].split("<")[0]
    assert response["Cache-Control"] == "no-store"
    assert valid_key(key=key.key, secret=secret, now=timezone.now()) == key
    assert secret not in admin.get("/access/api-keys/").content.decode()


def test_api_key_is_deleted_after_confirmation(admin: Client) -> None:
    assert admin.get("/access/api-keys/ABCDEFGHIJKLMNOP/delete/").status_code == 200

    admin.post("/access/api-keys/ABCDEFGHIJKLMNOP/delete/")

    assert not ApiKey.objects.filter(key="ABCDEFGHIJKLMNOP").exists()


def test_user_may_not_see_or_delete_api_keys_of_others(reader: Client) -> None:
    assert "ABCDEFGHIJKLMNOP" not in reader.get("/access/api-keys/").content.decode()
    assert reader.post("/access/api-keys/ABCDEFGHIJKLMNOP/delete/").status_code == 404


def test_reader_may_not_view_the_audit_log_and_the_denial_is_recorded(page_data: PageData, reader: Client) -> None:
    before = AuditEvent.objects.filter(result="DENIED").count()

    assert reader.get("/audit/").status_code == 403
    assert AuditEvent.objects.filter(result="DENIED").count() == before + 1
    assert "activity/" not in reader.get(page_data.link_url).content.decode()


FIELDS = ("password", "certificate_pem", "key_pem", "key_password")
CLUSTER = {
    "name": "ap-north",
    "bootstrap_servers": "ap-north.example:9092",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "link",
    "password": SECRET,
    "ca_pem": "",
}


def test_connection_test_stores_nothing(admin: Client, queue: Queue) -> None:
    queue.response = [check("CLUSTER_ID", finding="Cluster ID bmV3LWNsdXN0ZXItaWQtMQ.")]
    address = "/environments/production/clusters/new/"

    text = admin.post(address, CLUSTER | {"intent": "test"}).content.decode()

    assert queue.called == ["check_connection"]
    assert "Connection successful." in text
    assert "bmV3LWNsdXN0ZXItaWQtMQ" in text
    assert SECRET not in text
    assert not Cluster.objects.filter(name="ap-north").exists()


def test_fields_whose_secret_is_lost_ask_for_it_again(admin: Client, queue: Queue) -> None:
    queue.response = [check("DNS")]
    address, again = "/environments/production/clusters/new/", "Enter it again: the page does not contain what you entered."
    secrets = {"certificate_pem": "THE CERTIFICATE", "key_pem": "THE KEY", "intent": "test"}

    reloaded = admin.post(address, CLUSTER | secrets).content.decode()
    patched = admin.post(address, CLUSTER | secrets, **htmx("form")).content.decode()

    assert [reloaded.split(f'id="{name}_helptext"')[1].split("</p>")[0].count(again) for name in FIELDS] == [1, 1, 1, 0]
    assert again not in patched
    assert "<h1" not in patched
    for text in (reloaded, patched):
        assert "Connection successful." in text
        assert "THE KEY" not in text


def test_cluster_is_registered_with_a_client_certificate(admin: Client, queue: Queue) -> None:
    queue.response = {"cluster_id": "bmV3LWNsdXN0ZXItaWQtMQ", "brokers": 5, "kafka_version": "4.3.1", "authorizer": True}
    secrets = {"security_protocol": "SSL", "certificate_pem": "THE CERTIFICATE", "key_pem": "THE KEY", "key_password": "word"}
    address = "/environments/production/clusters/new/"

    refused = admin.post(address, CLUSTER | secrets | {"bootstrap_servers": "", "intent": "register"})
    admin.post(address, CLUSTER | secrets | {"intent": "register"})

    assert refused.status_code == 422
    assert "THE KEY" not in refused.content.decode()
    properties = Cluster.objects.get(name="ap-north").properties
    assert (properties["ssl.keystore.key"], properties["ssl.key.password"]) == ("THE KEY", "word")
    assert "sasl.jaas.config" not in properties


def test_registered_cluster_can_be_tested_and_each_failure_has_a_fix(page_data: PageData, admin: Client, queue: Queue) -> None:
    queue.response = [check("DNS"), check("TCP", status="FAILED", finding="No broker listens there.", fix="Check the port.")]

    text = admin.post(f"/clusters/{page_data.east.cluster_id}/test/").content.decode()

    assert "Connection test failed." in text
    assert "No broker listens there." in text
    assert "Check the port." in text
    assert queue.called == ["check_connection"]


def test_registered_cluster_is_tested_only_for_users_who_may_see_it(
    page_data: PageData, stranger: Client, queue: Queue
) -> None:
    assert stranger.post(f"/clusters/{page_data.east.cluster_id}/test/").status_code == 404
    place = {"cluster": page_data.east, "resource_type": "ClusterLink", "resource_name": "west-to-east"}
    RoleBinding.objects.create(
        user=page_data.stranger, role="ResourceOwner", granted_at=timezone.now(), granted_by="test", **place
    )
    assert stranger.post(f"/clusters/{page_data.east.cluster_id}/test/").status_code == 403
    assert queue.called == []


def test_cluster_is_registered(admin: Client, queue: Queue) -> None:
    queue.response = {"cluster_id": "bmV3LWNsdXN0ZXItaWQtMQ", "brokers": 5, "kafka_version": "4.3.1", "authorizer": True}

    response = admin.post("/environments/production/clusters/new/", CLUSTER | {"intent": "register"})

    assert response["Location"] == "/clusters/bmV3LWNsdXN0ZXItaWQtMQ/"
    assert admin.get(response["Location"]).status_code == 200


# code and message of the engine, the field, and the beginning of what to do there
UNREACHABLE = [
    (
        ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        "No broker listens.",
        "bootstrap_servers",
        "Check the port, the firewall",
    ),
    (ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, "No such name.", "bootstrap_servers", "Correct the host name"),
    (ErrorCode.TIMEOUT_ERROR, "No response.", "bootstrap_servers", "Check the address, the security protocol"),
    (ErrorCode.AUTHENTICATION_ERROR, "User refused.", "password", "Enter user name and password again"),
    (ErrorCode.AUTHENTICATION_ERROR, "Check ssl.truststore.certificates.", "ca_pem", "Check that the port is a TLS listener"),
]


@pytest.mark.parametrize(("code", "message", "field", "fix"), UNREACHABLE)
def test_unreachable_cluster_shows_reason_and_fix_at_the_field(
    admin: Client, queue: Queue, code: ErrorCode, message: str, field: str, fix: str
) -> None:
    queue.response = LinkEngineError(code, message)

    response = admin.post("/environments/production/clusters/new/", CLUSTER | {"intent": "register"})

    assert response.status_code == 422
    shown = response.content.decode().split(f'id="{field}_error"')[1].split("</div>")[0]
    assert message in shown
    assert f" {fix}" in shown
    assert code in shown
    assert not Cluster.objects.filter(name="ap-north").exists()


def test_refresh_sends_probe_and_topic_refresh(page_data: PageData, admin: Client, queue: Queue) -> None:
    admin.post(f"/clusters/{page_data.east.cluster_id}/refresh/")

    assert queue.sent == ["probe_cluster", "refresh_topics"]
