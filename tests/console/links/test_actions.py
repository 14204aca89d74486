"""Creation and deletion of cluster links."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.actors import Actor
from console.errors import (
    BadRequestError,
    ConflictError,
    ConsoleError,
    DeniedError,
    InvalidInputError,
    UnavailableError,
)
from console.links.actions import create_link, delete_link
from console.mirrors import actions as mirror_actions
from console.models import AuditEvent, Cluster, ClusterLink, LinkConfig, MirrorTopic
from console.models.fields import unseal
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import LinkMode, LinkState, MirrorState
from tests.console.conftest import NOW, SOURCE_PROPERTIES, Engine, MakeActor, MakeMirror

Sent = list[tuple[str, dict[str, Any]]]


def create(destination: Cluster, by: Actor, **changes: Any) -> Any:
    values: dict[str, Any] = {"name": "new", "source_cluster_id": "source-id", "configs": SOURCE_PROPERTIES, "now": NOW}
    return create_link(destination=destination, by=by, **{**values, **changes})


def test_a_link_is_stored_with_its_configs_and_audited(
    destination: Cluster, source: Cluster, owner: Actor, engine: Engine, sent: Sent
) -> None:
    link = create(
        destination, owner, configs={**SOURCE_PROPERTIES, "topic.config.sync.ms": "7000", "cluster.link.prefix": "w."}
    )

    assert link is not None
    assert (link.source, link.prefix, link.created_by) == (source, "w.", "owner")
    assert link.properties == SOURCE_PROPERTIES
    assert dict(LinkConfig.objects.values_list("name", "value")) == {
        "topic.config.sync.ms": "7000",
        "cluster.link.prefix": "w.",
    }
    event = AuditEvent.objects.get()
    assert (event.action, event.result, event.resource) == ("CreateClusterLink", "SUCCESS", "cluster/destination-id/link/new")
    assert "secret" not in str(event.detail)
    assert [name for name, _ in sent] == ["reconcile_link", "refresh_topics"]


def test_a_link_can_be_created_paused(destination: Cluster, owner: Actor, engine: Engine, sent: Sent) -> None:
    link = create(destination, owner, configs={**SOURCE_PROPERTIES, "cluster.link.paused": "true"})

    assert link is not None
    assert link.state == "PAUSED"


def test_credentials_are_encrypted_in_the_validation_task(destination: Cluster, owner: Actor, engine: Engine) -> None:
    create(destination, owner)

    ((name, kwargs),) = engine.calls
    assert (name, kwargs["source_cluster_id"]) == ("check_link", "source-id")
    assert "secret" not in kwargs["sealed"]
    assert unseal(kwargs["sealed"])["source"] == SOURCE_PROPERTIES


@pytest.mark.parametrize("name", ["ssl.endpoint.identification.algorithm", "local.ssl.endpoint.identification.algorithm"])
def test_an_empty_endpoint_identification_algorithm_disables_host_name_checks(
    name: str, destination: Cluster, owner: Actor, engine: Engine, sent: Sent
) -> None:
    """As in Kafka, empty is a value of this config; for all other configs it means the default."""
    link = create(
        destination, owner, configs={**SOURCE_PROPERTIES, name: "", "cluster.link.prefix": "", "ssl.key.password": ""}
    )

    assert link is not None
    assert link.properties == {**SOURCE_PROPERTIES, name: ""}
    assert address_from_properties({**link.properties, "ssl.endpoint.identification.algorithm": ""}).ssl_check_hostname is False
    assert not LinkConfig.objects.exists()


def test_a_cluster_id_of_more_than_64_characters_is_refused(destination: Cluster, owner: Actor, engine: Engine) -> None:
    with pytest.raises(InvalidInputError, match="65 characters; at most 64 are allowed"):
        create(destination, owner, source_cluster_id="i" * 65)
    assert not engine.calls


@pytest.mark.parametrize(("mode", "fills"), [("DESTINATION", True), ("BIDIRECTIONAL", True), ("SOURCE", False)])
def test_gap_filling_is_validated_only_for_a_side_with_mirrors(
    destination: Cluster, owner: Actor, engine: Engine, mode: str, fills: bool
) -> None:
    create(destination, owner, configs={**SOURCE_PROPERTIES, "link.mode": mode}, validate_only=True)

    assert engine.calls[0][1]["fills_gaps"] is fills


def test_validate_only_contacts_the_source_and_stores_nothing(
    destination: Cluster, owner: Actor, engine: Engine, sent: Sent
) -> None:
    engine.responses["check_link"] |= {"distances": [{"broker": 3, "address": "far.test:9092", "round_trip_ms": 80.5}]}

    found = create(destination, owner, validate_only=True)

    assert engine.calls[0][1]["with_distances"] is True
    assert [(distance.broker, distance.round_trip_ms) for distance in found.distances] == [(3, 80.5)]
    assert not sent
    assert not ClusterLink.objects.exists()


def test_a_link_created_without_validation_contacts_no_cluster(destination: Cluster, owner: Actor, engine: Engine) -> None:
    assert create(destination, owner, validate_link=False) is not None
    assert not engine.calls


def test_the_cluster_id_is_read_from_the_source_if_it_is_not_given(destination: Cluster, owner: Actor, engine: Engine) -> None:
    link = create(destination, owner, source_cluster_id="")
    assert link is not None
    assert link.source_cluster_id == "source-id"

    with pytest.raises(InvalidInputError, match="source_cluster_id"):
        create(destination, owner, name="other", source_cluster_id="", validate_link=False)


def test_a_wrong_password_is_a_bad_request_with_the_engines_message(destination: Cluster, owner: Actor, engine: Engine) -> None:
    engine.refuses("check_link", LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "Refused. Correct the password."))

    with pytest.raises(BadRequestError, match="Correct the password") as caught:
        create(destination, owner)

    assert caught.value.code == "AUTHENTICATION_ERROR"
    assert not ClusterLink.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "no spaces"}, "link_name"),
        ({"name": "-"}, "link_name"),
        ({"name": "."}, "link_name"),
        ({"name": ".."}, "link_name"),
        ({"name": "x" * 201}, "link_name"),
        ({"configs": {"no.such.config": "1"}}, "no.such.config"),
        ({"configs": {**SOURCE_PROPERTIES, "acl.sync.ms": "soon"}}, "acl.sync.ms"),
        ({"configs": {"security.protocol": "PLAINTEXT"}, "source_cluster_id": "unknown"}, "bootstrap.servers"),
    ],
)
def test_invalid_input_names_its_field(
    changes: dict[str, Any], field: str, destination: Cluster, owner: Actor, engine: Engine
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        create(destination, owner, **changes)

    assert caught.value.field == field
    assert not engine.calls


def test_a_cluster_cannot_be_its_own_source(destination: Cluster, owner: Actor) -> None:
    with pytest.raises(BadRequestError, match="same cluster"):
        create(destination, owner, source_cluster_id="destination-id")


def test_an_inbound_link_needs_a_registered_source(destination: Cluster, owner: Actor, engine: Engine) -> None:
    values: dict[str, Any] = {
        "destination": destination,
        "name": "pushed",
        "source_cluster_id": "not-registered",
        "by": owner,
        "now": NOW,
    }
    with pytest.raises(InvalidInputError, match="Register the source first") as refused:
        create_link(**values, configs={**SOURCE_PROPERTIES, "connection.mode": "INBOUND"})

    assert refused.value.field == "source_cluster_id"
    assert not ClusterLink.objects.exists()


TERRAFORM = {
    "bootstrap.servers": "SASL_SSL://source.test:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'PlainLoginModule required username="k" password="s";',
}


@pytest.mark.parametrize("configs", [{}, {"bootstrap.servers": "source.test:9092"}, TERRAFORM])
def test_a_link_without_usable_security_uses_the_registered_credentials(
    destination: Cluster, source: Cluster, owner: Actor, engine: Engine, sent: Sent, configs: dict[str, str]
) -> None:
    link = create(destination, owner, configs=configs)

    assert unseal(engine.calls[-1][1]["sealed"])["source"] == SOURCE_PROPERTIES
    assert link is not None
    assert link.uses_cluster_credentials
    assert link.properties == configs
    assert AuditEvent.objects.get().detail["uses_cluster_credentials"] is True


def test_registered_credentials_are_not_used_if_the_actor_may_not_see_the_cluster(
    destination: Cluster, source: Cluster, make_actor: MakeActor, engine: Engine
) -> None:
    admin_here = make_actor("admin-here", "CloudClusterAdmin", cluster=destination)

    with pytest.raises(InvalidInputError):
        create(destination, admin_here, configs={})
    link = create(destination, admin_here)
    assert link is not None
    assert link.source is None


@pytest.mark.parametrize(
    ("role", "scope"),
    [
        ("DeveloperRead", {"resource_type": "Topic", "resource_name": "x"}),
        ("DeveloperRead", {}),
        ("DeveloperManage", {}),
        ("ResourceOwner", {}),
    ],
)
@pytest.mark.parametrize("validate_link", [True, False])
def test_using_stored_credentials_needs_a_separate_permission(
    destination: Cluster,
    source: Cluster,
    make_actor: MakeActor,
    engine: Engine,
    role: str,
    scope: dict[str, str],
    validate_link: bool,
) -> None:
    """An administrator of one cluster cannot read another cluster's records by linking to it."""
    make_actor("admin-here", "CloudClusterAdmin", cluster=destination)
    reader = make_actor("admin-here", role, cluster=source, **scope)

    for configs in ({}, {"bootstrap.servers": "source.test:9092"}, {"security.protocol": "SASL_PLAINTEXT"}):
        with pytest.raises(DeniedError, match=r"use the stored credentials.*CloudClusterAdmin.*its own credentials"):
            create(destination, reader, configs=configs, validate_link=validate_link)
    assert not engine.calls
    assert not ClusterLink.objects.exists()
    assert AuditEvent.objects.filter(result="DENIED", action="USE_CREDENTIALS").count() == 3


def test_a_link_with_its_own_credentials_needs_no_permission_at_the_source(
    destination: Cluster, source: Cluster, make_actor: MakeActor, engine: Engine
) -> None:
    make_actor("admin-here", "CloudClusterAdmin", cluster=destination)
    reader = make_actor("admin-here", "DeveloperRead", cluster=source)

    link, other = create(destination, reader), create(destination, reader, name="other", configs=TERRAFORM)

    assert link is not None
    assert other is not None
    assert link.source == source
    assert unseal(engine.calls[-1][1]["sealed"])["source"] == TERRAFORM  # complete, so used as given
    assert not link.uses_cluster_credentials
    assert not other.uses_cluster_credentials


@pytest.mark.parametrize("role", ["CloudClusterAdmin", "EnvironmentAdmin", "OrganizationAdmin"])
def test_administrators_of_the_source_may_use_its_stored_credentials(
    destination: Cluster, source: Cluster, make_actor: MakeActor, engine: Engine, sent: Sent, role: str
) -> None:
    make_actor("admin", "CloudClusterAdmin", cluster=destination)
    places: dict[str, dict[str, Any]] = {
        "CloudClusterAdmin": {"cluster": source},
        "EnvironmentAdmin": {"environment": source.environment},
    }
    at_source = places.get(role, {"organization": source.environment.organization})

    link = create(destination, make_actor("admin", role, **at_source), configs={})

    assert link is not None
    assert link.uses_cluster_credentials


LOCAL = {f"local.{name}": value for name, value in SOURCE_PROPERTIES.items() if name != "bootstrap.servers"}


def test_a_source_side_needs_the_permission_at_its_own_cluster_or_local_credentials(
    destination: Cluster, source: Cluster, make_actor: MakeActor, engine: Engine, sent: Sent
) -> None:
    """The destination side signs in with these credentials; an owner of single links may not hand out the cluster's own."""
    at_source = {"cluster": source, "resource_type": "ClusterLink", "resource_name": "team-", "prefixed": True}
    link_owner = make_actor("link-owner", "ResourceOwner", **at_source)
    values = {"name": "team-a", "source_cluster_id": "destination-id"}
    there = {"bootstrap.servers": "destination.test:9092", "security.protocol": "PLAINTEXT", "link.mode": "SOURCE"}

    with pytest.raises(DeniedError, match=r"stored credentials of clusters in cluster/source-id.*local\.sasl\.jaas\.config"):
        create(source, link_owner, **values, configs=there)
    for partial in ({"local.sasl.mechanism": "PLAIN"}, {"local.security.protocol": "SASL_SSL"}):
        with pytest.raises(InvalidInputError, match=r"replace all registered credentials") as refused:
            create(source, link_owner, **values, configs={**there, **partial})
        assert refused.value.field == "local.sasl.jaas.config"
    assert create(source, link_owner, **values, configs={**there, **LOCAL}) is not None


def test_an_inbound_side_needs_the_permission_unless_the_source_side_exists(
    destination: Cluster, source: Cluster, owner: Actor, make_actor: MakeActor, engine: Engine, sent: Sent
) -> None:
    make_actor("admin-here", "CloudClusterAdmin", cluster=destination)
    admin_here = make_actor("admin-here", "DeveloperRead", cluster=source)
    inbound = {"name": "pushed", "configs": {"connection.mode": "INBOUND"}}
    with pytest.raises(DeniedError, match="create the source side of the link first"):
        create(destination, admin_here, **inbound)
    assert not engine.calls

    there = {"bootstrap.servers": "destination.test:9092", "security.protocol": "PLAINTEXT", "link.mode": "SOURCE"}
    own = {**LOCAL, "local.sasl.jaas.config": 'ScramLoginModule required username="exporter" password="p";'}
    create(source, owner, name="pushed", source_cluster_id="destination-id", configs={**there, **own}, validate_link=False)
    create(destination, admin_here, **inbound)

    assert "exporter" in unseal(engine.calls[-1][1]["sealed"])["source"]["sasl.jaas.config"]
    assert "secret-of-the-link" not in str(unseal(engine.calls[-1][1]["sealed"])["source"])


def test_acl_sync_needs_the_permission_to_manage_acls_of_the_destination(
    destination: Cluster, make_actor: MakeActor, engine: Engine, sent: Sent
) -> None:
    """The source selects these ACLs, and the destination's stored credentials create them."""
    link_owner = make_actor("link-owner", "ResourceOwner", cluster=destination)
    filters = '{"aclFilters": [{"resourceFilter": {"resourceType": "any"}, "accessFilter": {"operation": "any"}}]}'
    configs = {**SOURCE_PROPERTIES, "acl.sync.enable": "true", "acl.filters": filters}

    with pytest.raises(DeniedError, match="manage ACLs"):
        create(destination, link_owner, configs=configs)
    assert create(destination, link_owner, configs={**configs, "acl.sync.enable": "false"}) is not None


@pytest.mark.parametrize("servers", ["elsewhere.test:9092", "source.test:9092,elsewhere.test:9092"])
def test_registered_credentials_are_used_for_registered_addresses_only(
    servers: str, destination: Cluster, source: Cluster, owner: Actor, engine: Engine
) -> None:
    with pytest.raises(InvalidInputError, match=r"names elsewhere\.test:9092, which is not an address") as caught:
        create(destination, owner, configs={"bootstrap.servers": servers})

    assert caught.value.field == "bootstrap.servers"
    assert not engine.calls


def test_a_second_link_with_the_same_name_is_refused(destination: Cluster, owner: Actor, engine: Engine) -> None:
    create(destination, owner)

    with pytest.raises(BadRequestError, match=r"Cluster link 'new' already exists\."):
        create(destination, owner, configs={**SOURCE_PROPERTIES, "acl.sync.ms": "9000"})


def test_a_repeated_request_succeeds_after_a_503(destination: Cluster, owner: Actor, colleague: Actor, engine: Engine) -> None:
    check = engine.responses["check_link"]
    engine.refuses("check_link", UnavailableError("No worker responds."))
    with pytest.raises(UnavailableError):
        create(destination, owner)
    engine.responses["check_link"] = check
    first = create(destination, owner)

    assert create(destination, owner, now=NOW + timedelta(seconds=30)) == first
    for changes in ({"now": NOW + timedelta(minutes=5)}, {"configs": {**SOURCE_PROPERTIES, "acl.sync.ms": "9000"}}):
        with pytest.raises(BadRequestError, match="already exists"):
            create(destination, owner, **changes)


def test_a_reader_may_not_create_links(destination: Cluster, colleague: Actor, engine: Engine) -> None:
    with pytest.raises(DeniedError, match="ResourceOwner"):
        create(destination, colleague)

    assert AuditEvent.objects.get().result == "DENIED"
    assert not engine.calls


def test_a_denial_with_an_invalid_long_name_is_audited(destination: Cluster, colleague: Actor, engine: Engine) -> None:
    with pytest.raises(DeniedError):
        create(destination, colleague, name="a" * 700)

    AuditEvent.objects.get().full_clean()


def test_a_link_with_mirrors_cannot_be_deleted(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    for name in "abcdefg":
        make_mirror(name)

    with pytest.raises(ConflictError, match="'a', 'b', 'c', 'd', 'e' and 2 more"):
        delete_link(link=link, by=owner, now=NOW)


@pytest.mark.parametrize("state", sorted(set(MirrorState) - {MirrorState.STOPPED}))
def test_the_refused_deletion_of_a_link_names_only_mirrors_that_are_not_stopped(
    state: MirrorState, link: ClusterLink, make_mirror: MakeMirror, owner: Actor
) -> None:
    make_mirror("done", MirrorState.STOPPED)
    make_mirror("orders", state)

    with pytest.raises(ConflictError, match="not stopped: 'orders'") as refused:
        delete_link(link=link, by=owner, now=NOW)

    assert "done" not in refused.value.message


def test_a_link_whose_mirrors_are_stopped_can_be_deleted(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    done = make_mirror("done", MirrorState.STOPPED)

    delete_link(link=link, validate_only=True, by=owner, now=NOW)
    assert ClusterLink.objects.exists()
    delete_link(link=link, by=owner, now=NOW)

    assert not ClusterLink.objects.exists()
    assert not MirrorTopic.objects.exists()
    assert AuditEvent.objects.get().action == "DeleteClusterLink"
    assert sent == [("forget_link", {"link_key": link.link_uuid.hex, "partitions": {done.engine_name: 2}})]


def test_a_forced_deletion_fails_mirrors_over_first(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    make_mirror("live")
    make_mirror("done", MirrorState.STOPPED)

    delete_link(link=link, force=True, by=owner, now=NOW)

    states = dict(MirrorTopic.objects.values_list("name", "state"))
    assert states == {"live": "PENDING_STOPPED", "done": "STOPPED"}
    assert ClusterLink.objects.get().deletion_requested_by == "owner"
    assert "reconcile_link" in [name for name, _ in sent]


def test_no_mirror_is_stored_on_a_link_whose_deletion_started_during_the_checks(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, engine: Engine, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks on both clusters may take long, so the link may be deleted while they run."""
    make_mirror("live")
    stale = ClusterLink.objects.get(pk=link.pk)
    monkeypatch.setattr(mirror_actions, "check_free", lambda **_: delete_link(link=link, force=True, by=owner, now=NOW))
    with pytest.raises(ConflictError, match="is being deleted"):
        mirror_actions.create_mirror(link=stale, source_topic="late", by=owner, now=NOW)
    with pytest.raises(ConflictError, match="is being deleted"):
        mirror_actions.auto_create(link=stale, source_topic="late", now=NOW)

    MirrorTopic.objects.all().delete()
    ClusterLink.objects.all().delete()
    with pytest.raises(ConflictError, match="has been deleted"):
        mirror_actions.auto_create(link=stale, source_topic="late", now=NOW)


@pytest.mark.parametrize(("state", "left"), [(LinkState.ACTIVE, LinkState.FAILED), (LinkState.PAUSED, LinkState.PAUSED)])
def test_an_inbound_link_fails_without_its_source_side_unless_it_is_paused(
    link: ClusterLink, back: ClusterLink, owner: Actor, sent: Sent, state: LinkState, left: LinkState
) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(mode=LinkMode.DESTINATION, connection_mode="INBOUND", state=state)
    ClusterLink.objects.filter(pk=back.pk).update(mode=LinkMode.SOURCE)

    delete_link(link=ClusterLink.objects.get(pk=back.pk), by=owner, now=NOW)

    assert ClusterLink.objects.get().state == left


def test_a_refusal_is_a_console_error(destination: Cluster, stranger: Actor) -> None:
    with pytest.raises(ConsoleError):
        create(destination, stranger)
