"""Registering, updating, probing and unregistering clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet

from console.actors import Actor
from console.clusters import actions as cluster_actions
from console.errors import BadRequestError, ConflictError, ConsoleError, DeniedError, InvalidInputError
from console.models import AuditEvent, Cluster, ClusterLink, Environment
from console.models.fields import UnreadableProperties, unseal
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.console.conftest import NOW, SOURCE_PROPERTIES, Engine

Sent = list[tuple[str, dict[str, Any]]]


def register(environment: Environment, by: Actor, **changes: Any) -> Cluster:
    values = {"name": "West", "properties": SOURCE_PROPERTIES, "now": NOW, **changes}
    return cluster_actions.register_cluster(environment=environment, by=by, **values)


def test_a_cluster_is_registered_with_the_id_of_its_brokers(
    environment: Environment, owner: Actor, engine: Engine, sent: Sent
) -> None:
    cluster = register(environment, owner)

    assert (cluster.cluster_id, cluster.kafka_version, cluster.brokers, cluster.probed_at) == ("source-id", "4.3", 1, NOW)
    assert cluster.bootstrap_servers == "source.test:9092"
    assert AuditEvent.objects.get().detail == {"name": "West"}
    assert sent == [("refresh_topics", {"cluster_pk": cluster.pk})]
    assert "secret" not in str(engine.calls)


def test_a_cluster_is_registered_once(environment: Environment, owner: Actor, engine: Engine) -> None:
    register(environment, owner)
    with pytest.raises(BadRequestError, match="already registered"):
        register(environment, owner, name="Other")


@pytest.mark.parametrize("cluster_id", ["", "..", "destination-id/link", "a?b", "x" * 65])
def test_a_cluster_id_that_is_no_segment_of_a_path_is_refused(
    cluster_id: str, environment: Environment, owner: Actor, engine: Engine
) -> None:
    """With a slash, readers of its audit log would read that of a link of another cluster."""
    engine.responses["probe_address"] |= {"cluster_id": cluster_id}

    with pytest.raises(InvalidInputError) as caught:
        register(environment, owner)

    assert caught.value.field == "bootstrap.servers"
    assert not Cluster.objects.exists()


@pytest.mark.parametrize(
    "changes", [{"name": " "}, {"properties": {}}, {"properties": {"bootstrap.servers": "a:1", "security.protocol": "X"}}]
)
def test_invalid_input_is_refused_before_the_cluster_is_contacted(
    changes: dict[str, Any], environment: Environment, owner: Actor, engine: Engine
) -> None:
    with pytest.raises(InvalidInputError):
        register(environment, owner, **changes)
    assert not engine.calls


UNSUPPORTED = {
    "delegation tokens": {"sasl.jaas.config": 'ScramLoginModule required username="u" password="p" tokenauth="true";'},
    "GSSAPI": {"sasl.mechanism": "GSSAPI"},
    "ssl.keystore.location": {"ssl.keystore.location": "/etc/key.jks"},
    "sasl.login.callback.handler.class": {"sasl.login.callback.handler.class": "com.example.Handler"},
    "but security.protocol is": {"bootstrap.servers": "SSL://a:1", "security.protocol": "SASL_SSL"},
    "b:2/x": {"bootstrap.servers": "a:1,b:2/x"},
}


@pytest.mark.parametrize("named", UNSUPPORTED)
def test_unsupported_security_and_servers_are_refused_by_name(
    named: str, environment: Environment, source: Cluster, owner: Actor, engine: Engine
) -> None:
    properties = {**SOURCE_PROPERTIES, **UNSUPPORTED[named]}

    changes: tuple[Callable[[], object], ...] = (
        lambda: register(environment, owner, properties=properties),
        lambda: cluster_actions.update_properties(cluster=source, properties=properties, by=owner, now=NOW),
    )
    for change in changes:
        with pytest.raises(InvalidInputError, match=named):
            change()
    assert not engine.calls


def test_protocol_prefixes_are_removed_from_all_bootstrap_servers(
    environment: Environment, owner: Actor, engine: Engine
) -> None:
    protocol = SOURCE_PROPERTIES["security.protocol"]
    servers = f"{protocol}://one.test:9092, {protocol.lower()}://two.test:9092,{protocol}://[2001:db8::1]:9092"

    cluster = register(environment, owner, properties={**SOURCE_PROPERTIES, "bootstrap.servers": servers})

    assert cluster.bootstrap_servers == cluster.address.bootstrap_servers == "one.test:9092,two.test:9092,[2001:db8::1]:9092"


def test_a_cluster_that_cannot_be_reached_is_not_registered(environment: Environment, owner: Actor, engine: Engine) -> None:
    engine.refuses("probe_address", LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response."))
    with pytest.raises(ConsoleError, match="No response"):
        register(environment, owner)
    assert not Cluster.objects.exists()


def test_renaming_a_cluster_is_audited(source: Cluster, destination: Cluster, owner: Actor, colleague: Actor) -> None:
    cluster_actions.rename(cluster=source, name="Source", by=owner, now=NOW)
    assert not AuditEvent.objects.exists()

    cluster_actions.rename(cluster=source, name="West", by=owner, now=NOW)

    event = AuditEvent.objects.get()
    assert (event.action, event.resource) == ("RenameCluster", "cluster/source-id")
    assert event.detail == {"from": "Source", "to": "West"}
    for name, error in ((" ", InvalidInputError), (destination.name, BadRequestError)):
        with pytest.raises(error):
            cluster_actions.rename(cluster=source, name=name, by=owner, now=NOW)
    with pytest.raises(DeniedError):
        cluster_actions.rename(cluster=destination, name="East", by=colleague, now=NOW)
    assert set(Cluster.objects.values_list("name", flat=True)) == {"West", "Destination"}


def test_new_credentials_increase_the_revision_of_the_clusters_links(
    source: Cluster, link: ClusterLink, owner: Actor, engine: Engine
) -> None:
    cluster_actions.update_properties(cluster=source, properties={"bootstrap.servers": "new:9092"}, by=owner, now=NOW)

    assert Cluster.objects.get(pk=source.pk).properties == {"bootstrap.servers": "new:9092"}
    assert ClusterLink.objects.get().revision == link.revision + 1


@pytest.mark.parametrize(
    "change",
    [
        {"bootstrap.servers": "attacker.test:9092"},
        {"sasl.mechanism": "PLAIN"},
        {"security.protocol": "SASL_SSL", "ssl.endpoint.identification.algorithm": ""},
        {"sasl.oauthbearer.token.endpoint.url": "http://attacker.test/", "sasl.mechanism": "OAUTHBEARER"},
    ],
)
def test_the_stored_secret_of_a_cluster_is_not_redirected(
    source: Cluster, owner: Actor, engine: Engine, sent: Sent, change: dict[str, str]
) -> None:
    """Properties are replaced as a whole, so a change that leaves the secret out has no secret to send."""
    kept = {name: value for name, value in SOURCE_PROPERTIES.items() if name != "sasl.jaas.config"}

    with pytest.raises(ConsoleError, match=r"sasl\.jaas\.config is not set"):
        cluster_actions.update_properties(cluster=source, properties={**kept, **change}, by=owner, now=NOW)
    assert not engine.calls
    cluster_actions.update_properties(
        cluster=source, properties={"bootstrap.servers": "x:1", "security.protocol": "PLAINTEXT"}, by=owner, now=NOW
    )
    assert "secret-of-the-link" not in str(unseal(engine.calls[-1][1]["sealed"]))
    assert "secret-of-the-link" not in str(Cluster.objects.get(pk=source.pk).properties)


LOCAL = {f"local.{name}": value for name, value in SOURCE_PROPERTIES.items() if name == "sasl.jaas.config"}
PRIVATE_KEY = {"local.security.protocol": "SSL", "local.ssl.keystore.key": "secret-of-the-link"}


@pytest.fixture
def side(source: Cluster, destination: Cluster) -> ClusterLink:
    """The source side of a source-initiated link. It stores a secret for its own cluster, without an address."""
    return ClusterLink.objects.create(
        name="pushed",
        mode="SOURCE",
        destination=source,
        source=destination,
        source_cluster_id=destination.cluster_id,
        properties={**destination.properties, **LOCAL},
        state_since=NOW,
        created_at=NOW,
        created_by="another user",
    )


@pytest.mark.parametrize("secret", [LOCAL, PRIVATE_KEY])
@pytest.mark.parametrize(
    "change",
    [
        {"bootstrap.servers": "attacker.test:9092"},
        {"bootstrap.servers": "source.test:9092,attacker.test:9092"},
        {"sasl.mechanism": "PLAIN"},
        {"security.protocol": "SASL_SSL", "ssl.endpoint.identification.algorithm": ""},
        {"sasl.oauthbearer.token.endpoint.url": "http://attacker.test/", "sasl.mechanism": "OAUTHBEARER"},
    ],
)
def test_a_registration_that_would_redirect_the_local_secret_of_a_link_is_refused(
    source: Cluster, side: ClusterLink, owner: Actor, engine: Engine, sent: Sent, change: dict[str, str], secret: dict[str, str]
) -> None:
    ClusterLink.objects.filter(pk=side.pk).update(properties={**side.properties, **secret})
    login = 'OAuthBearerLoginModule required clientId="i" clientSecret="s";' if "OAUTH" in str(change) else None
    properties = {**SOURCE_PROPERTIES, **change, **({"sasl.jaas.config": login} if login else {})}

    with pytest.raises(InvalidInputError, match=r"'pushed'.*Delete these links on cluster 'Source'") as refused:
        cluster_actions.update_properties(cluster=source, properties=properties, by=owner, now=NOW)

    assert refused.value.code == "SECRET_NEEDED"
    assert not engine.calls
    assert Cluster.objects.get(pk=source.pk).properties == SOURCE_PROPERTIES

    side.delete()  # as the message says
    cluster_actions.update_properties(cluster=source, properties=properties, by=owner, now=NOW)
    assert Cluster.objects.get(pk=source.pk).properties == properties


def test_a_registration_may_change_what_the_local_secret_of_a_link_does_not_depend_on(
    source: Cluster, destination: Cluster, side: ClusterLink, owner: Actor, engine: Engine, sent: Sent
) -> None:
    rotated = {**SOURCE_PROPERTIES, "sasl.jaas.config": 'ScramLoginModule required username="link" password="rotated";'}
    cluster_actions.update_properties(cluster=source, properties=rotated, by=owner, now=NOW)

    own_mechanism = {**side.properties, "local.sasl.mechanism": "SCRAM-SHA-256"}
    ClusterLink.objects.filter(pk=side.pk).update(properties=own_mechanism)
    other_mechanism = {**rotated, "sasl.mechanism": "SCRAM-SHA-256"}
    cluster_actions.update_properties(cluster=source, properties=other_mechanism, by=owner, now=NOW)
    assert Cluster.objects.get(pk=source.pk).properties == other_mechanism

    engine.responses["probe_address"] = {**engine.responses["probe_address"], "cluster_id": "destination-id"}
    moved = {"bootstrap.servers": "moved.test:9092"}  # the secret is for the other cluster
    cluster_actions.update_properties(cluster=destination, properties=moved, by=owner, now=NOW)
    assert Cluster.objects.get(pk=destination.pk).properties == moved


@pytest.mark.parametrize(
    "values",
    [
        {"properties": {}},  # signs in with the registered credentials, which the change replaces
        {"mode": "DESTINATION", "properties": dict(SOURCE_PROPERTIES)},
        {"mode": "BIDIRECTIONAL", "properties": dict(SOURCE_PROPERTIES)},
    ],
)
def test_a_link_without_local_secrets_does_not_prevent_another_address(
    source: Cluster, side: ClusterLink, owner: Actor, engine: Engine, sent: Sent, values: dict[str, Any]
) -> None:
    ClusterLink.objects.filter(pk=side.pk).update(**values)

    cluster_actions.update_properties(
        cluster=source, properties={**SOURCE_PROPERTIES, "bootstrap.servers": "moved.test:9092"}, by=owner, now=NOW
    )

    assert Cluster.objects.get(pk=source.pk).bootstrap_servers == "moved.test:9092"


def test_a_link_whose_properties_cannot_be_decrypted_counts_as_one_with_secrets(
    source: Cluster, side: ClusterLink, owner: Actor, engine: Engine, sent: Sent
) -> None:
    token = Fernet(Fernet.generate_key()).encrypt(b"{}").decode()
    ClusterLink.objects.filter(pk=side.pk).update(properties=UnreadableProperties(token))
    properties = {**SOURCE_PROPERTIES, "bootstrap.servers": "moved.test:9092"}

    with pytest.raises(InvalidInputError, match="'pushed'"):
        cluster_actions.update_properties(cluster=source, properties=properties, by=owner, now=NOW)

    assert cluster_actions.rename(cluster=source, name="West", by=owner, now=NOW).name == "West"


def test_a_cluster_whose_properties_cannot_be_decrypted_gets_new_ones(
    source: Cluster, owner: Actor, engine: Engine, sent: Sent
) -> None:
    token = Fernet(Fernet.generate_key()).encrypt(b"{}").decode()
    Cluster.objects.filter(pk=source.pk).update(properties=UnreadableProperties(token))
    stored = Cluster.objects.get(pk=source.pk)
    with pytest.raises(LinkEngineError, match="CLUSTERLINK_CREDENTIALS_KEY"):
        assert stored.address

    cluster_actions.update_properties(cluster=stored, properties=SOURCE_PROPERTIES, by=owner, now=NOW)

    assert Cluster.objects.get(pk=source.pk).address.sasl_username == "link"


def test_properties_of_another_cluster_are_refused(destination: Cluster, owner: Actor, engine: Engine) -> None:
    with pytest.raises(BadRequestError, match="not to destination-id"):
        cluster_actions.update_properties(cluster=destination, properties=SOURCE_PROPERTIES, by=owner, now=NOW)


def test_a_failed_probe_keeps_the_previous_results(source: Cluster) -> None:
    source.kafka_version = "3.9"
    cluster_actions.note_failed_probe(cluster=source, error=LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response."))
    assert Cluster.objects.get(pk=source.pk).error_message == "No response."

    probe = {"cluster_id": "source-id", "brokers": 3, "kafka_version": "4.3", "authorizer": False}
    cluster_actions.note_probe(cluster=source, probe=probe, now=NOW)
    row = Cluster.objects.get(pk=source.pk)
    assert (row.error_message, row.brokers, row.has_authorizer) == ("", 3, False)


def test_readers_of_a_cluster_may_refresh_it(destination: Cluster, colleague: Actor, stranger: Actor, sent: Sent) -> None:
    cluster_actions.refresh(cluster=destination, by=colleague)
    assert [name for name, _ in sent] == ["probe_cluster", "refresh_topics"]
    with pytest.raises(DeniedError):
        cluster_actions.refresh(cluster=destination, by=stranger)


def test_a_reader_may_not_register_clusters(environment: Environment, colleague: Actor, engine: Engine) -> None:
    with pytest.raises(DeniedError, match="CloudClusterAdmin"):
        register(environment, colleague)


def test_unregistering_a_cluster_is_audited(source: Cluster, owner: Actor, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        cluster_actions.unregister(cluster=source, by=colleague, now=NOW)
    assert Cluster.objects.filter(pk=source.pk).exists()

    cluster_actions.unregister(cluster=source, by=owner, now=NOW)

    event = AuditEvent.objects.get(action="UnregisterCluster")
    assert (event.resource, event.detail) == ("cluster/source-id", {"name": "Source"})
    assert not Cluster.objects.filter(cluster_id="source-id").exists()


def test_a_cluster_with_links_cannot_be_unregistered(link: ClusterLink, owner: Actor) -> None:
    with pytest.raises(ConflictError, match="Delete its links first"):
        cluster_actions.unregister(cluster=link.destination, by=owner, now=NOW)

    assert Cluster.objects.filter(pk=link.destination_id).exists()
    assert not AuditEvent.objects.filter(action="UnregisterCluster").exists()
