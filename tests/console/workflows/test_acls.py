"""ACL sync on real clusters: ACLs are created and deleted, and those that the link did not create are not changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from console.models import Cluster, ClusterLink, LinkConfig, MirrorTopic, Namespace, SyncedAcl
from console.reconciling import plans
from console.workflows import syncs
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.acls import Acl, namespace_guard
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.workflows.conftest import Until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture
def rule(topic_name: str, there: ClusterAdmin, here: ClusterAdmin) -> Iterator[Acl]:
    """An ACL for a principal of this test. All ACLs of that principal are deleted afterwards."""
    principal = f"User:{topic_name}"
    yield Acl(
        resource_type="TOPIC",
        resource_name=topic_name,
        pattern_type="LITERAL",
        principal=principal,
        host="*",
        operation="READ",
        permission="ALLOW",
    )
    for admin in (there, here):
        admin.delete_acls([acl for acl in admin.acls() if acl.principal == principal])


def switch_on(link: ClusterLink, rule: Acl) -> ClusterLink:
    return choose(link, {"resourceFilter": {"resourceType": "any"}, "accessFilter": {"principal": rule.principal}})


def choose_topic(link: ClusterLink, topic: str) -> ClusterLink:
    return choose(link, {"resourceFilter": {"resourceType": "topic", "name": topic}, "accessFilter": {}})


def choose(link: ClusterLink, *rows: dict[str, Any]) -> ClusterLink:
    for name, value in (("acl.sync.enable", "true"), ("acl.filters", json.dumps({"aclFilters": rows}))):
        LinkConfig.objects.update_or_create(link=link, name=name, defaults={"value": value})
    return ClusterLink.objects.get(pk=link.pk)


def of(admin: ClusterAdmin, rule: Acl) -> set[Acl]:
    return {acl for acl in admin.acls() if acl.principal == rule.principal}


def put(admin: ClusterAdmin, rules: list[Acl], until: Until) -> None:
    assert admin.create_acls(rules) == {}
    until(lambda: set(rules) <= admin.acls())  # the broker follows the controller


def remove(admin: ClusterAdmin, rules: list[Acl], until: Until) -> None:
    assert admin.delete_acls(rules) == {}
    until(lambda: not set(rules) & admin.acls())


def statuses(link: ClusterLink) -> dict[str, str]:
    return dict(SyncedAcl.objects.filter(link=link).values_list("operation", "status"))


def test_additions_and_removals_follow_and_a_second_run_changes_nothing(
    link: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    link, prefixed = switch_on(link, rule), replace(rule, pattern_type="PREFIXED", operation="WRITE", permission="DENY")
    put(there, [rule, prefixed], until)

    first = syncs.follow_acls(link)
    until(lambda: of(here, rule) == {rule, prefixed})
    second = syncs.follow_acls(link)
    remove(there, [rule], until)
    third = syncs.follow_acls(link)

    assert (first.changes, second.changes, third.changes) == (2, 0, 1)
    assert first.errors == ()
    assert first.summary == "ACLs synced: 2; not changed: 0; conflicts: 0."
    until(lambda: of(here, rule) == {prefixed})
    assert statuses(link) == {"WRITE": "CREATED"}


def test_acls_that_the_source_does_not_show_are_not_deleted(
    link: ClusterLink, rule: Acl, source_cluster: KafkaCluster, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    """Without DESCRIBE on the cluster no ACL is listed. Synced ACLs stay, and the gate reports an error."""
    link = switch_on(link, rule)
    put(there, [rule], until)
    syncs.follow_acls(link)
    until(lambda: of(here, rule) == {rule})
    ClusterLink.objects.update(properties=source_cluster.client_properties("app"))
    link = ClusterLink.objects.get(pk=link.pk)

    for task in (syncs.follow_acls, syncs.acl_inequalities):
        with pytest.raises(LinkEngineError, match="Cluster authorization failed") as refused:
            task(link)
        assert refused.value.code is ErrorCode.AUTHORIZATION_ERROR
    assert of(here, rule) == {rule}
    assert statuses(link) == {"READ": "CREATED"}


def test_gate_finds_missing_surplus_and_contradicted_acls(
    link: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    """None of these is an error of a run: they wait for their turn, were never tried, or are local."""
    link = switch_on(link, rule)
    put(there, [rule], until)
    assert "1 ACLs of the source are missing on the destination, for example ALLOW READ" in syncs.acl_inequalities(link)[0]

    syncs.follow_acls(link)
    until(lambda: syncs.acl_inequalities(link) == [])
    put(here, [rule.opposite], until)
    assert "are contradicted by an ACL of the destination" in syncs.acl_inequalities(link)[0]
    remove(here, [rule.opposite], until)
    remove(there, [rule], until)
    assert "of the destination have been removed at the source" in syncs.acl_inequalities(link)[0]
    until(lambda: of(here, rule) == {rule})  # a check changes nothing


def test_local_acl_stays_when_the_source_deletes_the_same_acl(
    link: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    link = switch_on(link, rule)
    put(here, [rule], until)
    put(there, [rule], until)

    syncs.follow_acls(link)
    row = SyncedAcl.objects.get()
    remove(there, [rule], until)
    syncs.follow_acls(link)

    assert (row.status, row.is_conflict) == ("ALREADY_THERE", True)
    assert of(here, rule) == {rule}
    assert not SyncedAcl.objects.exists()


def test_acl_of_two_links_stays_until_both_sources_have_deleted_it(
    link: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    link = switch_on(link, rule)
    second = switch_on(_another(link), rule)
    put(there, [rule], until)
    syncs.follow_acls(link)
    until(lambda: of(here, rule) == {rule})
    syncs.follow_acls(second)
    assert (statuses(link), statuses(second)) == ({"READ": "CREATED"}, {"READ": "SHARED"})

    remove(there, [rule], until)
    syncs.follow_acls(link)
    assert of(here, rule) == {rule}  # the second link still has it

    syncs.follow_acls(second)
    until(lambda: of(here, rule) == set())


def test_guard_acl_of_a_mirror_topic_is_not_changed(
    link: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, topic_name: str, until: Until
) -> None:
    everybody = replace(rule, principal="User:*", operation="WRITE", permission="DENY")
    link = choose_topic(link, topic_name)
    here.deny_writes(topic_name)
    there.deny_writes(topic_name)

    syncs.follow_acls(link)
    assert SyncedAcl.objects.get().status == "GUARD"
    there.allow_writes(topic_name)
    syncs.follow_acls(link)

    assert here.denies_writes(topic_name)
    assert not SyncedAcl.objects.exists()
    here.allow_writes(topic_name)
    assert everybody not in here.acls()


@pytest.fixture
def back(source: Cluster, destination: Cluster, destination_cluster: KafkaCluster) -> ClusterLink:
    """A link in the other direction."""
    return ClusterLink.objects.create(
        name="back",
        destination=source,
        source=destination,
        source_cluster_id=destination.cluster_id,
        properties=destination_cluster.client_properties("admin"),
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )


def test_acl_that_a_link_created_is_not_synced_back_by_a_link_in_the_other_direction(
    link: ClusterLink, back: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, until: Until
) -> None:
    link, back = switch_on(link, rule), switch_on(back, rule)
    put(there, [rule], until)
    syncs.follow_acls(link)
    until(lambda: of(here, rule) == {rule})
    remove(there, [rule], until)

    syncs.follow_acls(back)

    assert statuses(back) == {"READ": "CAME_FROM_HERE"}
    assert of(there, rule) == set()


@pytest.mark.parametrize(
    "facts",
    [
        {"state": "PENDING_SETUP"},
        {"state": "PENDING_RESTORE_MIRROR", "num_partitions": 2, "holds_copy": False},
        {"state": "FAILED", "prior_state": "PENDING_SETUP"},
    ],
    ids=["set-up", "restore", "failed set-up"],
)
def test_acl_that_hides_a_head_during_seeding_is_not_synced_back(
    link: ClusterLink, back: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, facts: dict[str, Any]
) -> None:
    """It would deny consumers the production topic."""
    topic, dated = rule.resource_name, {"state_since": NOW, "created_at": NOW}
    MirrorTopic.objects.create(link=link, name=topic, source_topic=topic, **dated, **facts)
    back = choose_topic(back, topic)
    here.deny_reads(topic)

    try:
        outcome = syncs.follow_acls(back)
        assert not there.denies_reads(topic)
    finally:
        here.allow_reads(topic)
        there.allow_reads(topic)

    assert outcome.changes == 0
    assert set(SyncedAcl.objects.filter(resource_name=topic).values_list("status", flat=True)) == {"GUARD"}


@pytest.mark.parametrize("facts", [{"reserved": True}, {"reserved": False, "guarded": None}], ids=["reserved", "given up"])
def test_guard_acl_of_a_namespace_is_not_synced_back(
    back: ClusterLink,
    destination: Cluster,
    rule: Acl,
    there: ClusterAdmin,
    here: ClusterAdmin,
    until: Until,
    facts: dict[str, Any],
) -> None:
    Namespace.objects.create(cluster=destination, prefix=rule.resource_name, created_at=NOW, created_by="owner", **facts)
    guard = namespace_guard(rule.resource_name)
    back = choose_topic(back, rule.resource_name)
    put(here, [guard], until)

    try:
        outcome = syncs.follow_acls(back)
        assert guard not in there.acls()
    finally:
        for admin in (here, there):
            remove(admin, [guard], until)

    assert outcome.changes == 0
    assert SyncedAcl.objects.get(resource_name=rule.resource_name).status == "GUARD"


def test_acl_missing_in_one_response_is_not_deleted(
    link: ClusterLink, rule: Acl, there: ClusterAdmin, here: ClusterAdmin, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just started, or was disconnected, has old metadata."""
    link, read_all, omit_once = switch_on(link, rule), jobs.read_acls, [True]
    put(there, [rule], until)
    syncs.follow_acls(link)
    until(lambda: of(here, rule) == {rule})

    def read(address: ClusterAddress) -> set[Acl]:
        omits = address == plans.source_address(link) and omit_once and omit_once.pop()
        return read_all(address) - {rule} if omits else read_all(address)

    monkeypatch.setattr(jobs, "read_acls", read)
    outcome = syncs.follow_acls(link)

    assert (outcome.changes, outcome.errors, omit_once) == (0, (), [])
    assert of(here, rule) == {rule}
    assert statuses(link) == {"READ": "CREATED"}


def test_cluster_without_authorizer_is_an_error_not_an_empty_list(
    link: ClusterLink, rule: Acl, here: ClusterAdmin, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = switch_on(link, rule)
    monkeypatch.setattr(ClusterAdmin, "has_authorizer", lambda _: False)

    with pytest.raises(LinkEngineError) as refused:
        syncs.follow_acls(link)

    assert refused.value.code is ErrorCode.SECURITY_DISABLED_ERROR


def _another(link: ClusterLink) -> ClusterLink:
    return ClusterLink.objects.create(
        name="second",
        destination=link.destination,
        source=link.source,
        source_cluster_id=link.source_cluster_id,
        properties=link.properties,
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )
