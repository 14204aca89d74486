"""Changing configs of a link: all or nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from console.actions.links import ConfigChange, alter_configs
from console.actors import Actor
from console.errors import DeniedError, InvalidInputError
from console.models import AuditEvent, ClusterLink, GroupOffset, LinkConfig, MirrorTopic, SyncedGroup
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection
from linkengine.domain.linkconfigspec import ConfigKind, LinkConfigSpec
from linkengine.domain.states import LinkState
from tests.console.conftest import NOW, MakeActor

Sent = list[tuple[str, dict[str, Any]]]


def alter(link: ClusterLink, by: Actor, *, validate_only: bool = False, **changes: str | None) -> ClusterLink:
    wanted = [ConfigChange(name=name.replace("_", "."), value=value) for name, value in changes.items()]
    alter_configs(link=link, changes=wanted, validate_only=validate_only, by=by, now=NOW)
    return ClusterLink.objects.get(pk=link.pk)


def test_a_setting_leaves_running_copies_alone(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    row = alter(link, owner, topic_config_sync_ms="9000")

    assert LinkConfig.objects.get().value == "9000"
    assert (row.revision, row.sequence) == (link.revision, link.sequence + 1)
    assert sent == [("reconcile_link", {"link_id": link.pk, "probe": True})]


def test_new_credentials_reach_running_copies(link: ClusterLink, owner: Actor) -> None:
    row = alter(link, owner, sasl_jaas_config='PlainLoginModule required username="u" password="new-secret";')

    assert row.revision == link.revision + 1
    assert "new-secret" in row.properties["sasl.jaas.config"]
    assert "new-secret" not in str(AuditEvent.objects.get().detail)
    assert not LinkConfig.objects.exists()


@pytest.mark.parametrize("value", ["1000000", None])
def test_a_new_bandwidth_limit_reaches_running_copies(link: ClusterLink, owner: Actor, value: str | None) -> None:
    row = alter(link, owner, link_throughput_limit_bytes_per_second=value)

    assert row.revision == link.revision + 1


@pytest.mark.parametrize(
    ("name", "grown"), [("local_sasl_jaas_config", 1), ("sasl_jaas_config", 0), ("topic_config_sync_ms", 0)]
)
def test_how_to_sign_in_at_the_source_of_a_source_initiated_link_reaches_the_copies_of_its_other_side(
    link: ClusterLink, back: ClusterLink, owner: Actor, sent: Sent, name: str, grown: int
) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(mode="DESTINATION", connection_mode="INBOUND")
    ClusterLink.objects.filter(pk=back.pk).update(mode="SOURCE")
    value = "9000" if name.endswith("ms") else 'PlainLoginModule required username="u" password="new-secret";'

    alter(ClusterLink.objects.get(pk=back.pk), owner, **{name: value})

    row = ClusterLink.objects.get(pk=link.pk)
    assert (row.revision, row.sequence) == (link.revision + grown, link.sequence + grown)
    assert sent == [("reconcile_link", {"link_id": pk, "probe": True}) for pk in (back.pk, link.pk)[: 1 + grown]]


def test_the_side_that_copies_nothing_is_not_paused(link: ClusterLink, owner: Actor) -> None:
    ClusterLink.objects.filter(pk=link.pk).update(mode="SOURCE")
    link = ClusterLink.objects.get(pk=link.pk)

    with pytest.raises(InvalidInputError, match=r"would stop nothing\. .* at the destination cluster"):
        alter(link, owner, cluster_link_paused="true")
    assert ClusterLink.objects.get().state == "ACTIVE"

    assert alter(link, owner, cluster_link_paused="false").state == "ACTIVE"


def test_a_setting_goes_back_to_its_default(link: ClusterLink, owner: Actor) -> None:
    alter(link, owner, topic_config_sync_ms="9000")

    alter_configs(link=link, changes=[ConfigChange(name="topic.config.sync.ms", operation="DELETE")], by=owner, now=NOW)

    assert not LinkConfig.objects.exists()


def test_one_wrong_value_changes_nothing(link: ClusterLink, owner: Actor) -> None:
    with pytest.raises(InvalidInputError) as caught:
        alter(link, owner, topic_config_sync_ms="9000", acl_sync_ms="never")

    assert caught.value.field == "acl.sync.ms"
    assert not LinkConfig.objects.exists()


@pytest.mark.parametrize("name", ["cluster.link.prefix", "link.mode", "request.timeout.ms"])
def test_what_is_fixed_stays_fixed(name: str, link: ClusterLink, owner: Actor) -> None:
    with pytest.raises(InvalidInputError, match=name):
        alter_configs(link=link, changes=[ConfigChange(name=name, value="1")], by=owner, now=NOW)


def test_a_name_is_given_once(link: ClusterLink, owner: Actor) -> None:
    change = ConfigChange(name="acl.sync.ms", value="6000")
    with pytest.raises(InvalidInputError, match="twice"):
        alter_configs(link=link, changes=[change, change], by=owner, now=NOW)


def test_validate_only_changes_nothing(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    alter(link, owner, validate_only=True, acl_sync_ms="9000")

    assert not LinkConfig.objects.exists()
    assert not sent


def test_a_link_is_paused_and_resumed(link: ClusterLink, owner: Actor) -> None:
    assert alter(link, owner, cluster_link_paused="true").state == LinkState.PAUSED
    assert alter(link, owner, cluster_link_paused="false").state == LinkState.ACTIVE


def test_credentials_of_the_source_are_not_borrowed_by_an_edit(link: ClusterLink, make_actor: MakeActor) -> None:
    link_owner = make_actor("link-owner", "CloudClusterAdmin", cluster=link.destination)

    alter(link, link_owner, sasl_jaas_config='PlainLoginModule required username="u" password="p";')
    with pytest.raises(DeniedError):
        alter(link, link_owner, sasl_jaas_config=None)


def test_who_may_only_look_changes_nothing(link: ClusterLink, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        alter(link, colleague, acl_sync_ms="9000")


def test_switching_auto_create_off_clears_the_filters(link: ClusterLink, owner: Actor) -> None:
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
def test_groups_follow_no_more_once_the_offset_sync_is_switched_off(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, value: str | None
) -> None:
    alter(link, owner, consumer_offset_sync_enable="true")
    for status in GroupStatus:
        SyncedGroup.objects.create(link=link, name=status, destination_name=status, status=status, listed_at=NOW)
    acted = {"source_offset": 7, "target": 7, "outcome": "EQUAL", "acted_source": 7, "acted_destination": 7, "acted_at": NOW}
    GroupOffset.objects.create(group=link.groups.get(name="SYNCED"), mirror=mirror, partition=0, **acted)

    alter(link, owner, consumer_offset_sync_enable=value)

    kept = {"EXCLUDED", "UNSUPPORTED_TYPE", "NOT_LISTED", "NO_MIRROR_TOPIC"}
    assert {one.name: one.status for one in link.groups.all()} == {
        status.value: status.value if status in kept else "WAITING" for status in GroupStatus
    }
    assert "consumer.offset.sync.enable" in link.groups.get(name="SYNCED").message
    assert GroupOffset.objects.get().acted_source == 7  # what the next run steers by

    alter(link, owner, consumer_offset_sync_enable="true")
    assert link.groups.get(name="SYNCED").message == ""


def sample_of(spec: LinkConfigSpec) -> str:
    """Answer a value that the config takes and that is not its default."""
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
    "spec", [one for one in LINK_CONFIGS.values() if not is_connection(one.name)], ids=lambda one: one.name
)
def test_every_config_is_set_and_reset_or_refused_by_its_mark(spec: LinkConfigSpec, link: ClusterLink, owner: Actor) -> None:
    change = ConfigChange(name=spec.name, value=sample_of(spec))
    if spec.name == "consumer.group.prefix.enable":  # means nothing without a prefix
        LinkConfig.objects.create(link=link, name="cluster.link.prefix", value="west.")
    if spec.read_only or spec.immutable:
        with pytest.raises(InvalidInputError, match=re.escape(spec.name)):
            alter_configs(link=link, changes=[change], by=owner, now=NOW)
        assert not LinkConfig.objects.exists()
        return

    alter_configs(link=link, changes=[change], by=owner, now=NOW)
    assert LinkConfig.objects.get(name=spec.name).value == change.value

    alter_configs(link=link, changes=[ConfigChange(name=spec.name, operation="DELETE")], by=owner, now=NOW)
    assert not LinkConfig.objects.filter(name=spec.name).exists()
    assert ClusterLink.objects.get(pk=link.pk).config(spec.name) == (spec.default or "")
