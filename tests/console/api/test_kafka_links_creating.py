"""REST API: creation of cluster links, validation, refusals, repeated requests."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from console.errors import UnavailableError
from console.models import AuditEvent, Cluster, ClusterLink, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.console.api.actors import DESTINATION, NEW_LINK, NOW, SOURCE, Boundary, Rest, make_key

pytestmark = pytest.mark.django_db


def test_creating_a_link_returns_204_and_stores_it(owner: Rest, base: str, source: Any, boundary: Boundary) -> None:
    response = owner.post(f"{base}/links?link_name=new", NEW_LINK)

    assert (response.status_code, response.content) == (204, b"")
    stored = ClusterLink.objects.get(name="new")
    assert (stored.source, stored.source_cluster_id) == (source, SOURCE)
    assert boundary.called
    assert AuditEvent.objects.filter(action="CreateClusterLink", actor__startswith="owner (API key ").exists()


def test_validate_only_contacts_the_source_and_stores_nothing(owner: Rest, base: str, source: Any, boundary: Boundary) -> None:
    response = owner.post(f"{base}/links?link_name=new&validate_only=true", NEW_LINK)

    assert (response.status_code, response.json()["source_brokers"]) == (200, None)
    assert boundary.called
    assert not ClusterLink.objects.exists()


def test_without_validate_link_the_source_is_not_contacted(owner: Rest, base: str, boundary: Boundary) -> None:
    response = owner.post(f"{base}/links?link_name=new&validate_link=false", NEW_LINK)

    assert response.status_code == 204
    assert not boundary.called


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sasl.jaas.config": 'ScramLoginModule required username="u" password="p" tokenauth="true";'}, "delegation tokens"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"sasl.login.callback.handler.class": "com.example.Handler"}, "sasl.login.callback.handler.class"),
        ({"local.sasl.jaas.config": 'ScramLoginModule required username="u" password="p" tokenauth="true";'}, "delegation"),
        ({"local.sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"ssl.keystore.location": "/etc/key.jks"}, "ssl.keystore.location"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "ssl.endpoint.identification.algorithm"),
        ({"bootstrap.servers": "SSL://source.test:9092"}, "SSL://source.test:9092, but security.protocol is"),
        ({"bootstrap.servers": "source.test:9092,other.test"}, "'other.test'"),
    ],
)
def test_unsupported_security_and_servers_are_refused_by_name(
    owner: Rest, base: str, boundary: Boundary, changes: dict[str, str], named: str
) -> None:
    configs = {config["name"]: config["value"] for config in NEW_LINK["configs"]} | changes
    body = {**NEW_LINK, "configs": [{"name": name, "value": value} for name, value in configs.items()]}

    response = owner.post(f"{base}/links?link_name=new", body)

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert named in response.json()["message"]
    assert not boundary.called


@pytest.mark.parametrize("query", ["", "?link_name="])
def test_a_link_needs_a_name(owner: Rest, base: str, query: str) -> None:
    response = owner.post(f"{base}/links{query}", NEW_LINK)

    assert response.status_code == 400
    message = "The query parameter link_name is missing. Give the name of the new link."
    assert response.json() == {"error_code": 400, "message": message}


@pytest.mark.parametrize("name", ["a b", "-", ".", "..", "ä", "x" * 201, "a%2Fb"])
def test_an_invalid_link_name_is_refused(owner: Rest, base: str, name: str) -> None:
    response = owner.post(f"{base}/links?link_name={name}", NEW_LINK)

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)


def test_a_second_link_of_the_same_name_is_refused(owner: Rest, base: str, link: ClusterLink) -> None:
    response = owner.post(f"{base}/links?link_name=from-source", NEW_LINK)

    assert response.status_code == 400
    message = "Cluster link 'from-source' already exists. Choose another name, or change the existing link."
    assert response.json() == {"error_code": 40002, "message": message}


def test_a_create_whose_response_was_lost_can_be_repeated(owner: Rest, base: str, source: Any) -> None:
    for _ in range(2):
        assert owner.post(f"{base}/links?link_name=new", NEW_LINK).status_code == 204

    assert ClusterLink.objects.filter(name="new").count() == 1
    assert AuditEvent.objects.filter(action="CreateClusterLink").count() == 1


@pytest.mark.parametrize("change", ["values", "later", "another key"])
def test_a_create_that_is_not_a_repeat_is_refused(owner: Rest, base: str, source: Any, time_machine: Any, change: str) -> None:
    owner.post(f"{base}/links?link_name=new", NEW_LINK)
    body = {**NEW_LINK, "configs": NEW_LINK["configs"][:2]} if change == "values" else NEW_LINK
    if change == "later":
        time_machine.move_to(timezone.now() + timedelta(seconds=121))
    client = owner
    if change == "another key":
        api_key, secret = make_key(User.objects.get(username="owner"))
        client = Rest(api_key.key, secret)

    response = client.post(f"{base}/links?link_name=new", body)

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert "already exists" in response.json()["message"]


def test_a_wrong_password_is_reported_with_400(owner: Rest, base: str, boundary: Boundary) -> None:
    boundary.error = LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "The source refuses the password.")

    response = owner.post(f"{base}/links?link_name=new", NEW_LINK)

    assert response.status_code == 400
    assert response.json() == {"error_code": 40002, "message": "The source refuses the password."}
    assert not ClusterLink.objects.exists()


def test_an_unavailable_worker_is_reported_with_503(owner: Rest, base: str, boundary: Boundary) -> None:
    boundary.error = UnavailableError("No worker responds.")

    response = owner.post(f"{base}/links?link_name=new", NEW_LINK)

    assert response.status_code == 503
    assert response.json() == {"error_code": 50302, "message": "No worker responds."}
    assert not ClusterLink.objects.exists()


def test_a_config_given_twice_is_refused(owner: Rest, base: str) -> None:
    configs = [{"name": "acl.sync.ms", "value": "1"}, {"name": "acl.sync.ms", "value": "2"}]

    response = owner.post(f"{base}/links?link_name=new", {"source_cluster_id": SOURCE, "configs": configs})

    assert response.json() == {"error_code": 40002, "message": "Config 'acl.sync.ms' is given twice. Give each config once."}


def test_both_sides_of_a_bidirectional_link_have_one_id(owner: Rest, base: str, source: Cluster) -> None:
    mode = [{"name": "link.mode", "value": "BIDIRECTIONAL"}]
    there = f"/kafka/v3/clusters/{source.cluster_id}"

    assert owner.post(f"{base}/links?link_name=pair", {"remote_cluster_id": SOURCE, "configs": mode}).status_code == 204
    first = owner.get(f"{base}/links/pair").json()
    wrong = {"remote_cluster_id": DESTINATION, "cluster_link_id": "A" * 22, "configs": mode}
    refused = owner.post(f"{there}/links?link_name=pair", wrong)
    right = {**wrong, "cluster_link_id": first["cluster_link_id"]}
    assert owner.post(f"{there}/links?link_name=pair", right).status_code == 204

    assert refused.status_code == 400
    assert "cluster_link_id" in refused.json()["message"]
    second = owner.get(f"{there}/links/pair").json()
    assert (first["remote_cluster_id"], second["remote_cluster_id"]) == (SOURCE, DESTINATION)
    assert first["source_cluster_id"] is first["destination_cluster_id"] is None
    assert (second["cluster_link_id"], second["link_id"]) == (first["cluster_link_id"], first["link_id"])


def test_a_link_created_at_the_source_names_its_destination(owner: Rest, base: str, source: Cluster) -> None:
    there = f"/kafka/v3/clusters/{source.cluster_id}"
    body = {"destination_cluster_id": DESTINATION, "configs": [{"name": "link.mode", "value": "SOURCE"}]}

    assert owner.post(f"{there}/links?link_name=pushed", body).status_code == 204

    shown = owner.get(f"{there}/links/pushed").json()
    assert (shown["source_cluster_id"], shown["destination_cluster_id"]) == (None, DESTINATION)
    refused = owner.post(f"{there}/links/pushed/mirrors", {"source_topic_name": "orders"})
    assert refused.status_code == 400
    assert "This cluster is the source of cluster link" in refused.json()["message"]


def test_contradicting_cluster_ids_are_refused(owner: Rest, base: str) -> None:
    response = owner.post(f"{base}/links?link_name=new", {"source_cluster_id": SOURCE, "remote_cluster_id": "another"})

    assert response.status_code == 400
    assert "different clusters" in response.json()["message"]


def test_a_reader_of_the_source_cannot_use_its_stored_credentials(
    base: str, destination: Cluster, source: Cluster, boundary: Boundary
) -> None:
    """An admin of the destination who may see the source's metadata could read all of its records over such a link."""
    user = User.objects.create_user("neighbour")
    for role, cluster in (("CloudClusterAdmin", destination), ("DeveloperRead", source)):
        RoleBinding.objects.create(user=user, role=role, cluster=cluster, granted_at=NOW, granted_by="test")
    api_key, secret = make_key(user)
    neighbour = Rest(api_key.key, secret)

    for query in ("", "&validate_only=true", "&validate_link=false"):
        for configs in ([], [{"name": "bootstrap.servers", "value": "source.test:9092"}]):
            response = neighbour.post(f"{base}/links?link_name=new{query}", {"source_cluster_id": SOURCE, "configs": configs})
            assert (response.status_code, response.json()["error_code"]) == (403, 40301)
            assert "CloudClusterAdmin" in response.json()["message"]
            assert "security.protocol" in response.json()["message"]
    assert not boundary.called
    assert not ClusterLink.objects.exists()

    assert neighbour.post(f"{base}/links?link_name=new", NEW_LINK).status_code == 204
    assert not ClusterLink.objects.get().uses_cluster_credentials
