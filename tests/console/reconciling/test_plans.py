"""Conversion of rows into the engine's plans."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet

from console.links import pairs
from console.models import ClusterLink, LinkConfig, MirrorPartition, MirrorTopic, RestoreRun
from console.models.fields import UnreadableProperties
from console.reconciling import plans, transition_errors
from console.workflows.mirrors import note_synced
from console.workflows.reverse_and_restore import note_mirroring
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorSynced
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, SOURCE_PROPERTIES, MakeMirror

LOST_KEY = UnreadableProperties(Fernet(Fernet.generate_key()).encrypt(b"{}").decode())


def rows_of(*mirrors: MirrorTopic) -> dict[str, MirrorPartition]:
    return {f"{plans.mirror_key(mirror)}/{row.partition}": row for mirror in mirrors for row in mirror.partitions.all()}


def placed(*mirrors: MirrorTopic, worker: str = "0000-w") -> dict[str, MirrorPartition]:
    """Place all partitions of mirrors on a worker and return their rows."""
    MirrorPartition.objects.filter(mirror__in=mirrors).update(worker_id=worker)
    return rows_of(*mirrors)


def test_engine_keys_contain_the_links_uuid(mirror: MirrorTopic, link: ClusterLink) -> None:
    assert plans.link_key(link) == link.link_uuid.hex
    assert plans.mirror_key(mirror) == f"{link.link_uuid.hex[:16]}-{mirror.pk}"


def test_each_worker_is_assigned_the_partitions_placed_on_it(make_mirror: MakeMirror, link: ClusterLink) -> None:
    first, second = make_mirror("a", partitions=3, mirror_topic_id="a-id"), make_mirror("b", partitions=3)
    ClusterLink.objects.update(revision=7)
    link.refresh_from_db()
    rows = placed(first) | placed(second, worker="0001-w")
    key = next(assignment.key for assignment in plans.assignments_of(second))
    rows[key].worker_id = ""

    found = plans.copy_plans(link, [first, second], rows)

    assert {name: [assignment.key for assignment in plan.assignments] for name, plan in found.items()} == {
        "0000-w": [assignment.key for assignment in plans.assignments_of(first)],
        "0001-w": [assignment.key for assignment in plans.assignments_of(second)][1:],
    }
    plan = found["0000-w"]
    assert [assignment.mirror_topic_id for assignment in plan.assignments] == ["a-id"] * 3
    assert (plan.link_id, plan.revision, plan.workers) == (plans.link_key(link), 7, 2)
    assert plan.source.sasl_username == "link"
    assert "secret-of-the-link" not in repr(plan)


def test_partitions_that_are_not_wanted_are_left_out(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirror = make_mirror("a", partitions=3)
    rows = placed(mirror)
    rows.pop(plans.assignments_of(mirror)[1].key)

    (plan,) = plans.copy_plans(link, [mirror], rows).values()

    assert [assignment.partition for assignment in plan.assignments] == [0, 2]
    assert plans.copy_plans(link, [mirror], {}) == {}


def test_assignments_contain_the_source_epoch_and_the_end_read_under_it(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirror = make_mirror("a", partitions=2)
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(source_epoch=4, source_epoch_end=30)

    (plan,) = plans.copy_plans(link, [mirror], placed(mirror)).values()

    assert [assignment.source_seen for assignment in plan.assignments] == [None, (4, 30)]
    assert {assignment.since_ms for assignment in plan.assignments} == {int(mirror.state_since.timestamp() * 1000)}


@pytest.mark.parametrize(("value", "limit"), [(None, 0), ("-1", 0), ("2500000", 2_500_000)])
def test_plans_contain_the_links_bandwidth_limit(mirror: MirrorTopic, link: ClusterLink, value: str | None, limit: int) -> None:
    if value is not None:
        LinkConfig.objects.create(link=link, name="link.throughput.limit.bytes.per.second", value=value)
    (plan,) = plans.copy_plans(link, [mirror], placed(mirror)).values()

    assert plan.tuning.bytes_per_s == limit


def test_a_link_with_cluster_credentials_uses_those_of_its_registered_source(mirror: MirrorTopic, link: ClusterLink) -> None:
    link.properties, link.uses_cluster_credentials = {}, True
    assert plans.source_address(link).bootstrap_servers == SOURCE_PROPERTIES["bootstrap.servers"]


def test_a_link_without_cluster_credentials_never_uses_registered_ones(mirror: MirrorTopic, link: ClusterLink) -> None:
    """Also if the cluster is registered with another mechanism later, so that the link's own credentials fail."""
    link.properties = {}
    with pytest.raises(LinkEngineError, match=r"bootstrap\.servers is empty"):
        plans.source_address(link)

    own = 'PlainLoginModule required username="own" password="p";'
    link.properties = {**SOURCE_PROPERTIES, "sasl.mechanism": "PLAIN", "sasl.jaas.config": own}
    assert plans.source_address(link).sasl_username == "own"


def test_registered_credentials_are_refused_for_an_address_that_is_no_longer_registered(
    mirror: MirrorTopic, link: ClusterLink
) -> None:
    link.properties, link.uses_cluster_credentials = {"bootstrap.servers": "former.test:9092"}, True
    with pytest.raises(LinkEngineError, match=r"former\.test:9092, which is not an address"):
        plans.source_address(link)


@pytest.fixture
def inbound(link: ClusterLink, back: ClusterLink) -> ClusterLink:
    """The destination side of a source-initiated link; ``back`` is its source side."""
    own = {"local.sasl.jaas.config": 'ScramLoginModule required username="exporter" password="narrow";'}
    ClusterLink.objects.filter(pk=back.pk).update(mode="SOURCE", properties={**back.properties, **own})
    ClusterLink.objects.filter(pk=link.pk).update(mode="DESTINATION", connection_mode="INBOUND", properties={})
    return ClusterLink.objects.get(pk=link.pk)


def test_an_inbound_link_never_uses_registered_credentials_instead_of_those_of_its_source_side(
    inbound: ClusterLink, back: ClusterLink
) -> None:
    assert plans.source_address(inbound).sasl_username == "exporter"

    ClusterLink.objects.filter(pk=back.pk).update(properties=LOST_KEY)
    with pytest.raises(LinkEngineError, match="cannot be decrypted"):
        plans.source_address(inbound)

    back.delete()
    with pytest.raises(LinkEngineError, match="The source side is missing") as refused:
        plans.source_address(inbound)
    assert refused.value.code == "REMOTE_LINK_NOT_FOUND_ERROR"

    draft = ClusterLink(**{name: getattr(inbound, name) for name in ("name", "destination", "source", "source_cluster_id")})
    draft.connection_mode, draft.properties = "INBOUND", {}
    assert plans.source_address(draft).sasl_username == "link"  # checked with them, by a user who may use them


@pytest.mark.parametrize("why", ["no properties", "no source side", "a lost key"])
def test_a_stop_has_a_plan_without_servers_if_the_address_of_the_source_cannot_be_built(
    inbound: ClusterLink, back: ClusterLink, make_mirror: MakeMirror, why: str
) -> None:
    mirror = make_mirror(stop_reason="failover")
    changes: dict[str, Any] = {"connection_mode": "OUTBOUND", "properties": LOST_KEY if why == "a lost key" else {}}
    back.delete()
    if why != "no source side":
        ClusterLink.objects.filter(pk=inbound.pk).update(**changes)
    mirror = MirrorTopic.objects.get(pk=mirror.pk)
    with pytest.raises(LinkEngineError):
        plans.source_address(mirror.link)

    single, (together,) = plans.stop_of(mirror, generation=3), plans.stops_of([mirror], generations={mirror.pk: 3})

    for stop in (single, together):
        assert (stop.source.bootstrap_servers, stop.source.sasl_password) == ("", "")
        assert stop.destination.bootstrap_servers == "destination.test:9092"


def test_plans_contain_the_links_config_sync_filter(mirror: MirrorTopic, link: ClusterLink) -> None:
    assert plans.setup_of(mirror).sync_include is None
    LinkConfig.objects.create(link=link, name="topic.config.sync.include", value="retention.ms, cleanup.policy")
    mirror.link = ClusterLink.objects.get()

    assert plans.setup_of(mirror).sync_include == ("retention.ms", "cleanup.policy")
    assert plans.syncs_of([mirror])[0].sync_include == ("retention.ms", "cleanup.policy")


def test_stop_and_verify_plans_contain_recorded_ends(make_mirror: MakeMirror) -> None:
    mirror = make_mirror(stop_reason="failover")
    assert plans.stop_of(mirror, generation=3).fenced_ends == ()
    MirrorPartition.objects.filter(partition=1).update(stopped_end=10)

    assert plans.stop_of(mirror, generation=3).fenced_ends == ((1, 10),)
    assert plans.verify_of(mirror).ends == ((1, 10),)


def test_a_topic_that_was_ever_compacted_is_verified_as_compacted_until_it_is_created_anew(
    make_mirror: MakeMirror,
) -> None:
    mirror = make_mirror(mirror_topic_id="here")
    compacting, deleting = {"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}

    def sync(configs: dict[str, str]) -> bool:
        synced = MirrorSynced(partitions=2, source_partitions=2, source_configs=configs)
        note_synced(MirrorTopic.objects.get(), synced, now=NOW)
        return plans.verify_of(MirrorTopic.objects.get()).compacted

    def become_mirror(topic_id: str, configs: dict[str, str]) -> bool:
        MirrorTopic.objects.update(state=MirrorState.PENDING_RESTORE_MIRROR)
        made: dict[str, Any] = {"source_topic_id": "there", "partitions": 2, "read_only": True, "source_configs": configs}
        made_anew = MirrorCreated(mirror_topic_id=topic_id, **made)
        note_mirroring(MirrorTopic.objects.get(), made_anew, event=MirrorEvent.MIRROR_READY, starts={}, now=NOW)
        return plans.verify_of(MirrorTopic.objects.get()).compacted

    assert not plans.verify_of(mirror).compacted
    assert [sync(configs) for configs in (deleting, compacting, deleting)] == [False, True, True]
    assert become_mirror("here", deleting)
    changes = (("anew", deleting), ("again", compacting), ("again", deleting))
    assert [become_mirror(*change) for change in changes] == [False, True, True]


def test_a_topic_whose_mirror_was_ever_compacted_is_verified_as_compacted_when_it_becomes_the_mirror(
    make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {"source_topic_id": "there", "mirror_topic_id": "here", "partitions": 2, "read_only": True}
    mirror = make_mirror(mirror_topic_id="here", state=MirrorState.PENDING_MIRROR)
    former = make_mirror("former", state=MirrorState.STOPPED, was_compacted=True)
    monkeypatch.setattr(pairs, "counterpart", lambda _: former)

    note_mirroring(mirror, MirrorCreated(**made), event=MirrorEvent.MIRROR_READY, starts={}, now=NOW)

    assert plans.verify_of(MirrorTopic.objects.get(pk=mirror.pk)).compacted


def test_a_mirror_that_is_compacted_by_its_own_config_is_verified_as_compacted(make_mirror: MakeMirror) -> None:
    mirror = make_mirror(config_overrides={"cleanup.policy": "compact,delete"})

    note_synced(mirror, MirrorSynced(partitions=2, source_partitions=2, source_configs={}), now=NOW)

    assert plans.verify_of(MirrorTopic.objects.get()).compacted


def test_only_a_topic_that_never_held_a_copy_may_contain_part_of_a_head(make_mirror: MakeMirror) -> None:
    def seeding(mirror: MirrorTopic) -> bool:
        return plans.stop_of(mirror, generation=3).seeding

    stopping: dict[str, Any] = {"stop_reason": "failover", "state": MirrorState.PENDING_STOPPED}
    assert seeding(make_mirror("new", partitions=0, prior_state=MirrorState.PENDING_SETUP, **stopping))
    assert not seeding(make_mirror("active", prior_state=MirrorState.ACTIVE, **stopping))
    # With partitions in its row, the set-up has ended.
    assert not seeding(make_mirror("set-up", prior_state=MirrorState.PENDING_SETUP, **stopping))
    assert not seeding(make_mirror("becoming", prior_state=MirrorState.PENDING_MIRROR, holds_copy=False, **stopping))

    restored = make_mirror("restored", prior_state=MirrorState.PENDING_RESTORE_MIRROR, holds_copy=False, **stopping)
    run = RestoreRun.objects.create(mirror=restored, requested_by="owner", requested_at=NOW)
    assert not seeding(restored)  # the topic still holds the diverged records
    RestoreRun.objects.filter(pk=run.pk).update(deletion_decided_at=NOW)
    assert seeding(restored)


def test_mirrors_that_refused_records_without_a_key_are_returned_until_the_error_is_cleared(make_mirror: MakeMirror) -> None:
    refusing, other = make_mirror("a"), make_mirror("b")
    transition_errors.note(mirror=refusing, code="KEYLESS_RECORDS", message="No key.", now=NOW)
    transition_errors.note(mirror=other, code="TIMEOUT_ERROR", message="Late.", now=NOW)

    assert plans.keyless([refusing, other]) == {refusing.pk}
    assert [plan.keyless for plan in plans.syncs_of([refusing, other])] == [True, False]
    assert plans.keyless([other]) == set()
    transition_errors.clear(mirrors=[refusing], now=NOW)
    assert plans.keyless([refusing, other]) == set()
