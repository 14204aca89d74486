"""Changes of link configs: atomic, checked, and passed on to the copy workers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cryptography.fernet import Fernet

from console.actors import Actor
from console.errors import DeniedError, InvalidInputError
from console.links.actions import LinkConfigChange, alter_configs
from console.links.form_presenters import CONFIG_DESCRIPTIONS
from console.models import AuditEvent, Cluster, ClusterLink, GroupOffset, LinkConfig, MirrorTopic, SyncedGroup
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linkconfigs import LINK_CONFIGS, ConfigKind, LinkConfigSpec, is_connection
from linkengine.domain.states import LinkState
from tests.console.conftest import NOW, SOURCE_PROPERTIES, MakeActor

Sent = list[tuple[str, dict[str, Any]]]


def wanted(**changes: str | None) -> list[LinkConfigChange]:
    return [LinkConfigChange(name=name.replace("_", "."), value=value) for name, value in changes.items()]


def alter(link: ClusterLink, by: Actor, **changes: str | None) -> ClusterLink:
    alter_configs(link=link, changes=wanted(**changes), by=by, now=NOW)
    return ClusterLink.objects.get(pk=link.pk)


def test_a_config_that_copies_do_not_use_keeps_the_revision(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    row = alter(link, owner, topic_config_sync_ms="9000")

    assert LinkConfig.objects.get().value == "9000"
    assert (row.revision, row.sequence) == (link.revision, link.sequence + 1)
    assert sent == [("reconcile_link", {"link_id": link.pk, "probe": True})]


def test_new_credentials_increase_the_revision(link: ClusterLink, owner: Actor) -> None:
    row = alter(link, owner, sasl_jaas_config='PlainLoginModule required username="u" password="new-secret";')

    assert row.revision == link.revision + 1
    assert "new-secret" in row.properties["sasl.jaas.config"]
    assert "new-secret" not in str(AuditEvent.objects.get().detail)
    assert not LinkConfig.objects.exists()


@pytest.mark.parametrize("value", ["1000000", None])
def test_a_new_bandwidth_limit_increases_the_revision(link: ClusterLink, owner: Actor, value: str | None) -> None:
    row = alter(link, owner, link_throughput_limit_bytes_per_second=value)

    assert row.revision == link.revision + 1


@pytest.mark.parametrize(
    ("name", "grown"), [("local_sasl_jaas_config", 1), ("sasl_jaas_config", 0), ("topic_config_sync_ms", 0)]
)
def test_local_credentials_of_a_source_initiated_link_increase_the_revision_of_its_other_side(
    link: ClusterLink, back: ClusterLink, owner: Actor, sent: Sent, name: str, grown: int
) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(mode="DESTINATION", connection_mode="INBOUND")
    ClusterLink.objects.filter(pk=back.pk).update(mode="SOURCE")
    value = "9000" if name.endswith("ms") else 'PlainLoginModule required username="u" password="new-secret";'

    alter(ClusterLink.objects.get(pk=back.pk), owner, **{name: value})

    row = ClusterLink.objects.get(pk=link.pk)
    assert (row.revision, row.sequence) == (link.revision + grown, link.sequence + grown)
    assert sent == [("reconcile_link", {"link_id": pk, "probe": True}) for pk in (back.pk, link.pk)[: 1 + grown]]


def test_the_source_side_of_a_link_cannot_be_paused(link: ClusterLink, owner: Actor) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(mode="SOURCE")
    link = ClusterLink.objects.get(pk=link.pk)

    with pytest.raises(InvalidInputError, match=r"would stop nothing\. .* at the destination cluster"):
        alter(link, owner, cluster_link_paused="true")
    assert ClusterLink.objects.get().state == "ACTIVE"

    assert alter(link, owner, cluster_link_paused="false").state == "ACTIVE"


@pytest.mark.parametrize(("side", "state"), [(True, LinkState.ACTIVE), (False, LinkState.FAILED)])
def test_an_inbound_link_that_is_resumed_without_its_source_side_fails_with_the_reason(
    link: ClusterLink, back: ClusterLink, owner: Actor, sent: Sent, side: bool, state: LinkState
) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(mode="DESTINATION", connection_mode="INBOUND", properties={})
    ClusterLink.objects.filter(pk=back.pk).update(mode="SOURCE")
    paused = alter(ClusterLink.objects.get(pk=link.pk), owner, cluster_link_paused="true")
    assert (paused.state, paused.error_code) == (LinkState.PAUSED, "")
    if not side:
        back.delete()

    resumed = alter(paused, owner, cluster_link_paused="false")

    assert resumed.state == state
    assert (resumed.error_code, "source side is missing" in resumed.error_message) == (
        ("", False) if side else ("REMOTE_LINK_NOT_FOUND_ERROR", True)
    )


@pytest.mark.parametrize("properties", [{}, {"bootstrap.servers": "former.test:9092"}])
def test_a_link_whose_address_does_not_work_can_be_paused(
    link: ClusterLink, owner: Actor, sent: Sent, properties: dict[str, str]
) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(properties=properties, uses_cluster_credentials=bool(properties))
    link.refresh_from_db()

    assert alter(link, owner, cluster_link_paused="true").state == LinkState.PAUSED
    with pytest.raises(InvalidInputError):
        alter(link, owner, bootstrap_servers="not a server")


def test_properties_that_no_key_decrypts_stay_until_others_are_entered(
    link: ClusterLink, owner: Actor, sent: Sent, settings: Any
) -> None:
    keys, settings.CREDENTIALS_KEYS = settings.CREDENTIALS_KEYS, [Fernet.generate_key().decode()]
    Cluster.objects.update(properties=SOURCE_PROPERTIES)

    unreadable = alter(ClusterLink.objects.get(pk=link.pk), owner, cluster_link_paused="true")
    with pytest.raises(LinkEngineError, match="cannot be decrypted"):
        dict(unreadable.properties)
    settings.CREDENTIALS_KEYS = [*settings.CREDENTIALS_KEYS, *keys]
    assert ClusterLink.objects.get(pk=link.pk).properties == SOURCE_PROPERTIES

    settings.CREDENTIALS_KEYS = settings.CREDENTIALS_KEYS[:1]
    entered = {name.replace(".", "_"): value for name, value in SOURCE_PROPERTIES.items()}
    changed = alter(ClusterLink.objects.get(pk=link.pk), owner, **{**entered, "bootstrap_servers": "other.test:9092"})
    assert changed.properties == {**SOURCE_PROPERTIES, "bootstrap.servers": "other.test:9092"}


def test_deleting_a_config_resets_it_to_its_default(link: ClusterLink, owner: Actor) -> None:
    alter(link, owner, topic_config_sync_ms="9000")

    alter_configs(link=link, changes=[LinkConfigChange(name="topic.config.sync.ms", operation="DELETE")], by=owner, now=NOW)

    assert not LinkConfig.objects.exists()


def test_an_invalid_value_rejects_the_whole_request(link: ClusterLink, owner: Actor) -> None:
    with pytest.raises(InvalidInputError) as caught:
        alter(link, owner, topic_config_sync_ms="9000", acl_sync_ms="never")

    assert caught.value.field == "acl.sync.ms"
    assert not LinkConfig.objects.exists()


@pytest.mark.parametrize("name", ["cluster.link.prefix", "link.mode", "request.timeout.ms"])
def test_immutable_configs_cannot_be_changed(name: str, link: ClusterLink, owner: Actor) -> None:
    with pytest.raises(InvalidInputError, match=name):
        alter_configs(link=link, changes=[LinkConfigChange(name=name, value="1")], by=owner, now=NOW)


def test_a_config_that_is_named_twice_is_refused(link: ClusterLink, owner: Actor) -> None:
    change = LinkConfigChange(name="acl.sync.ms", value="6000")
    with pytest.raises(InvalidInputError, match="twice"):
        alter_configs(link=link, changes=[change, change], by=owner, now=NOW)


def test_validate_only_changes_nothing(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    alter_configs(link=link, changes=wanted(acl_sync_ms="9000"), validate_only=True, by=owner, now=NOW)

    assert not LinkConfig.objects.exists()
    assert not sent


def test_a_link_is_paused_and_resumed(link: ClusterLink, owner: Actor) -> None:
    assert alter(link, owner, cluster_link_paused="true").state == LinkState.PAUSED
    assert alter(link, owner, cluster_link_paused="false").state == LinkState.ACTIVE


def test_removing_the_own_credentials_needs_the_permission_to_use_the_registered_ones(
    link: ClusterLink, make_actor: MakeActor
) -> None:
    link_owner = make_actor("link-owner", "CloudClusterAdmin", cluster=link.destination)

    alter(link, link_owner, sasl_jaas_config='PlainLoginModule required username="u" password="p";')
    with pytest.raises(DeniedError):
        alter(link, link_owner, sasl_jaas_config=None)


STORED = SOURCE_PROPERTIES["sasl.jaas.config"]
RETYPED = {"sasl_jaas_config": 'ScramLoginModule required username="link" password="retyped";'}
PATH_CHANGES = (
    {"bootstrap_servers": "attacker.test:9092", "sasl_mechanism": "PLAIN"},
    {"bootstrap_servers": "attacker.test:9092"},
    {"bootstrap_servers": "source.test:9092,attacker.test:9092"},
    {"security_protocol": "SASL_SSL"},
    {"security_protocol": None},
    {"sasl_mechanism": "PLAIN"},
    {"sasl_mechanism": None},
    {"sasl_oauthbearer_token_endpoint_url": "http://attacker.test/"},
    {"ssl_truststore_certificates": "attacker's authority"},
    {"ssl_endpoint_identification_algorithm": ""},
)


@pytest.mark.parametrize("change", PATH_CHANGES)
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_stored_secret_is_not_redirected(
    link: ClusterLink, owner: Actor, make_actor: MakeActor, change: dict[str, str | None], validate_only: bool
) -> None:
    place = {"cluster": link.destination, "resource_type": "ClusterLink", "resource_name": "west-", "prefixed": True}
    for by in (make_actor("link-owner", "ResourceOwner", **place), owner):
        with pytest.raises(InvalidInputError, match=r"the request must contain sasl\.jaas\.config") as refused:
            alter_configs(link=link, changes=wanted(**change), validate_only=validate_only, by=by, now=NOW)
        assert (refused.value.code, refused.value.field) == ("SECRET_NEEDED", "sasl.jaas.config")

        link.refresh_from_db()
        assert link.properties == SOURCE_PROPERTIES


@pytest.mark.parametrize("change", PATH_CHANGES[:4])
def test_a_secret_that_the_request_contains_is_used_with_the_new_address(
    link: ClusterLink, owner: Actor, change: dict[str, str | None]
) -> None:
    properties = alter(link, owner, **change, **RETYPED).properties

    assert "retyped" in properties["sasl.jaas.config"]
    assert properties["bootstrap.servers"] == change.get("bootstrap_servers", SOURCE_PROPERTIES["bootstrap.servers"])


def test_a_secret_cannot_be_redirected_in_several_steps(link: ClusterLink, owner: Actor) -> None:
    """Without SASL the stored secret is not sent, but it would be sent again after the last step."""
    for step in ({"security_protocol": "PLAINTEXT"}, {"bootstrap_servers": "attacker.test:9092"}):
        with pytest.raises(InvalidInputError, match="the request must contain"):
            alter(link, owner, **step)
    alter(link, owner, sasl_jaas_config=None, security_protocol="PLAINTEXT", bootstrap_servers="elsewhere.test:9092")
    changed = alter(link, owner, security_protocol="SASL_PLAINTEXT", **RETYPED)
    assert STORED not in changed.properties.values()


def test_the_requests_of_confluents_terraform_provider_succeed(link: ClusterLink, owner: Actor) -> None:
    """It sends credentials, with the mechanism, in one batch, and other configs in a second batch."""
    changed = alter(link, owner, sasl_jaas_config=RETYPED["sasl_jaas_config"], sasl_mechanism="PLAIN")
    assert changed.properties["sasl.mechanism"] == "PLAIN"
    assert alter(link, owner, topic_config_sync_ms="7000").properties == changed.properties
    with pytest.raises(InvalidInputError, match="Send both in one request"):  # an address among the configs of the second batch
        alter(link, owner, bootstrap_servers="new.test:9092", topic_config_sync_ms="8000")
    assert not link.configs.filter(value="8000").exists()


def test_local_credentials_of_a_source_side_are_not_redirected(link: ClusterLink, source: Cluster, owner: Actor) -> None:
    """The destination side signs in with them at the source, so a token URL or a trusted CA redirects them like an address."""
    local = {f"local.{name}": value for name, value in SOURCE_PROPERTIES.items() if name != "bootstrap.servers"}
    there = {"bootstrap.servers": "destination.test:9092", "security.protocol": "PLAINTEXT"}
    ClusterLink.objects.filter(pk=link.pk).update(mode="SOURCE", properties={**there, **local})
    link.refresh_from_db()
    for change in (
        {"local_sasl_oauthbearer_token_endpoint_url": "http://attacker.test/"},
        {"local_security_protocol": "SASL_SSL"},
        {"local_ssl_truststore_certificates": "attacker's authority"},
        {"local_ssl_endpoint_identification_algorithm": ""},
    ):
        with pytest.raises(InvalidInputError, match=r"contain local\.sasl\.jaas\.config"):
            alter(link, owner, **change)
    alter(link, owner, local_security_protocol="SASL_SSL", local_sasl_jaas_config=RETYPED["sasl_jaas_config"])


@pytest.mark.parametrize(
    "change",
    [
        {"local_sasl_oauthbearer_token_endpoint_url": "http://attacker.test/"},
        {"local_sasl_mechanism": "PLAIN"},
        {"local_ssl_endpoint_identification_algorithm": ""},
    ],
)
def test_registered_credentials_of_a_source_side_are_not_redirected_by_one_local_config(
    link: ClusterLink, source: Cluster, destination: Cluster, owner: Actor, change: dict[str, str]
) -> None:
    there = {"bootstrap.servers": "destination.test:9092", "security.protocol": "PLAINTEXT"}
    changed = {"mode": "SOURCE", "destination": source, "source": destination, "source_cluster_id": destination.cluster_id}
    ClusterLink.objects.filter(pk=link.pk).update(**changed, properties=there)
    link = ClusterLink.objects.get(pk=link.pk)

    with pytest.raises(InvalidInputError, match="replace all registered credentials"):
        alter(link, owner, **change)


def test_starting_or_extending_the_use_of_stored_credentials_needs_the_permission(
    link: ClusterLink, source: Cluster, make_actor: MakeActor, owner: Actor
) -> None:
    make_actor("link-owner", "ResourceOwner", cluster=link.destination)
    link_owner = make_actor("link-owner", "DeveloperRead", cluster=source)
    everything = dict.fromkeys((name.replace(".", "_") for name in SOURCE_PROPERTIES), None)

    with pytest.raises(DeniedError, match="stored credentials"):
        alter(link, link_owner, **everything)
    assert alter(link, owner, **everything).uses_cluster_credentials
    with pytest.raises(DeniedError, match="stored credentials"):
        alter(link, link_owner, bootstrap_servers="source.test:9092")
    assert alter(link, link_owner, topic_config_sync_ms="7000").uses_cluster_credentials  # not affected by an unrelated change


def test_setting_complete_own_credentials_ends_the_use_of_stored_credentials(link: ClusterLink, owner: Actor) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(properties={}, uses_cluster_credentials=True)
    link.refresh_from_db()
    own = {name.replace(".", "_"): value for name, value in SOURCE_PROPERTIES.items()}

    assert not alter(link, owner, **own).uses_cluster_credentials
    assert AuditEvent.objects.latest("pk").detail["uses_cluster_credentials"] is False


def test_acl_sync_needs_the_permission_to_manage_acls(link: ClusterLink, owner: Actor, make_actor: MakeActor) -> None:
    link_owner = make_actor("link-owner", "ResourceOwner", cluster=link.destination)
    filters = '{"aclFilters": [{"resourceFilter": {"resourceType": "any"}, "accessFilter": {"operation": "any"}}]}'
    switched_on = {"acl_sync_enable": "true", "acl_filters": filters}

    with pytest.raises(DeniedError, match="manage ACLs"):
        alter(link, link_owner, **switched_on)
    alter(link, owner, **switched_on)
    # another source or other filters would select other ACLs, so changing them needs the permission too
    for change in ({"bootstrap_servers": "attacker.test:9092", **RETYPED}, {"acl_filters": filters}):
        with pytest.raises(DeniedError, match="manage ACLs"):
            alter(link, link_owner, **change)
    alter(link, link_owner, topic_config_sync_ms="7000")
    alter(link, link_owner, acl_sync_enable="false")


def test_a_reader_may_not_change_configs(link: ClusterLink, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        alter(link, colleague, acl_sync_ms="9000")


def test_disabling_auto_create_clears_its_filters(link: ClusterLink, owner: Actor) -> None:
    filters = '{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
    alter(
        link,
        owner,
        auto_create_mirror_topics_enable="true",
        auto_create_mirror_topics_filters=filters,
    )

    alter(link, owner, auto_create_mirror_topics_enable="false")

    assert list(LinkConfig.objects.values_list("name", "value")) == [("auto.create.mirror.topics.enable", "false")]
    assert AuditEvent.objects.first().detail["configs"]["auto.create.mirror.topics.filters"] is None  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["false", None], ids=["off", "default"])
def test_disabling_the_offset_sync_sets_groups_to_waiting(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, value: str | None
) -> None:
    alter(link, owner, consumer_offset_sync_enable="true")
    for status in GroupStatus:
        SyncedGroup.objects.create(link=link, name=status, destination_name=status, status=status, listed_at=NOW)
    acted = {"source_offset": 7, "target": 7, "outcome": "EQUAL", "acted_source": 7, "acted_destination": 7, "acted_at": NOW}
    GroupOffset.objects.create(group=link.groups.get(name="SYNCED"), mirror=mirror, partition=0, **acted)

    alter(link, owner, consumer_offset_sync_enable=value)

    kept = {"EXCLUDED", "UNSUPPORTED_TYPE", "NOT_LISTED", "NO_MIRROR_TOPIC"}
    assert {group.name: group.status for group in link.groups.all()} == {
        status.value: status.value if status in kept else "WAITING" for status in GroupStatus
    }
    assert "consumer.offset.sync.enable" in link.groups.get(name="SYNCED").message
    assert GroupOffset.objects.get().acted_source == 7  # the next run starts from these offsets

    alter(link, owner, consumer_offset_sync_enable="true")
    assert link.groups.get(name="SYNCED").message == ""


def sample_of(spec: LinkConfigSpec) -> str:
    """Return a valid value of the config that is not its default."""
    filters = '{{"{}": [{{"name": "a", "patternType": "LITERAL", "filterType": "INCLUDE"}}]}}'
    special = {
        "auto.create.mirror.topics.enable": "false",
        "auto.create.mirror.topics.filters": filters.format("topicFilters"),
        "consumer.offset.group.filters": filters.format("groupFilters"),
        "acl.filters": '{"aclFilters": [{"resourceFilter": {"resourceType": "any", "patternType": "any"}, '
        '"accessFilter": {"operation": "any", "permissionType": "any"}}]}',
        "mirror.start.offset.spec": "latest",
        "topic.config.sync.include": "retention.ms",
    }
    if spec.name in special:
        return special[spec.name]
    by_kind = {ConfigKind.FLAG: "true", ConfigKind.NUMBER: str(max(spec.lowest or 0, 7))}
    return spec.choices[-1] if spec.choices else by_kind.get(spec.kind, "west")


@pytest.mark.parametrize(
    "spec", [spec for spec in LINK_CONFIGS.values() if not is_connection(spec.name)], ids=lambda spec: spec.name
)
def test_every_config_can_be_set_and_reset_or_is_refused_as_immutable(
    spec: LinkConfigSpec, link: ClusterLink, owner: Actor
) -> None:
    change = LinkConfigChange(name=spec.name, value=sample_of(spec))
    if spec.name == "consumer.group.prefix.enable":  # has no effect without a prefix
        LinkConfig.objects.create(link=link, name="cluster.link.prefix", value="west.")
    if spec.read_only or spec.immutable:
        with pytest.raises(InvalidInputError, match=re.escape(spec.name)):
            alter_configs(link=link, changes=[change], by=owner, now=NOW)
        assert not LinkConfig.objects.exists()
        return

    alter_configs(link=link, changes=[change], by=owner, now=NOW)
    assert LinkConfig.objects.get(name=spec.name).value == change.value

    alter_configs(link=link, changes=[LinkConfigChange(name=spec.name, operation="DELETE")], by=owner, now=NOW)
    assert not LinkConfig.objects.filter(name=spec.name).exists()
    assert ClusterLink.objects.get(pk=link.pk).config(spec.name) == (spec.default or "")


def test_descriptions_of_all_configs_are_marked_for_translation() -> None:
    assert set(CONFIG_DESCRIPTIONS) == {spec.description for spec in LINK_CONFIGS.values()}
