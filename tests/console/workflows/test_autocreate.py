"""Auto-create on real clusters: topics that the filters include are mirrored once; every problem is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Barrier
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from console.actors import SYSTEM
from console.errors import ConflictError
from console.links.draft_presenters import count_topics
from console.links.drafts import DraftValues
from console.links.topic_queries import check_source_topic
from console.mirrors.actions import request_deletion
from console.models import AuditEvent, AutoCreateFailure, ClusterLink, LinkConfig, MirrorTopic, SourceTopic
from console.reconciling import plans
from console.workflows import syncs
from devcluster.access import APP, create_acls
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkrules import AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TaskOutcome
from linkengine.domain.mirrorability import MirrorabilityStatus
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.plans import TopicDescription
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW
from tests.topics import create_topics

pytestmark = pytest.mark.kafka
Filter = Callable[..., None]


@pytest.fixture
def topics(source_admin: AdminClient, topic_name: str) -> list[str]:
    """Three topics of the source with a common prefix."""
    names = [f"{topic_name}.{part}" for part in ("a", "b", "secret")]
    create_topics(source_admin, *(NewTopic(name, 1, 1) for name in names))
    return names


@pytest.fixture
def filters(link: ClusterLink, topic_name: str) -> Filter:
    """Enable auto-create for all topics with the test's prefix except ``.secret``."""

    def write(*excluded: str) -> None:
        rows = [{"name": topic_name, "patternType": "PREFIXED", "filterType": "INCLUDE"}]
        rows += [{"name": f"{topic_name}.{name}", "patternType": "LITERAL", "filterType": "EXCLUDE"} for name in excluded]
        values = {"enable": "true", "filters": json.dumps({"topicFilters": rows})}
        for name, value in values.items():
            LinkConfig.objects.update_or_create(link=link, name=f"auto.create.mirror.topics.{name}", defaults={"value": value})

    write("secret")
    return write


def run(link: ClusterLink) -> TaskOutcome:
    return syncs.create_mirrors(ClusterLink.objects.select_related("destination", "source").get(pk=link.pk))


def mirrored() -> list[str]:
    return list(MirrorTopic.objects.values_list("name", flat=True))


def test_included_topics_are_mirrored_once(link: ClusterLink, topics: list[str], filters: Filter) -> None:
    outcomes = [run(link), run(link)]

    assert [outcome.changes for outcome in outcomes] == [2, 0]
    assert outcomes[1].errors == ()
    assert mirrored() == topics[:2]
    assert set(MirrorTopic.objects.values_list("state", "auto_created", "created_by")) == {("PENDING_SETUP", True, "engine")}
    assert AuditEvent.objects.filter(action="CreateMirrorTopic", actor="engine").count() == 2
    assert SourceTopic.objects.filter(link=link, name__in=topics).count() == 3


def test_preview_of_a_new_link_names_the_mirror_topics_that_are_created(
    link: ClusterLink, topics: list[str], filters: Filter, source_admin: AdminClient, destination_admin: AdminClient
) -> None:
    """The wizard previews the filters of a link that does not exist yet, from its own list of the source."""
    names = [*topics, *(f"{topics[0]}{number}" for number in range(3))]
    create_topics(source_admin, *(NewTopic(name, 1, 1) for name in names[3:]))
    create_topics(destination_admin, NewTopic(f"w.{names[1]}", 1, 1))
    destination, source = link.destination, link.source
    assert source is not None
    SourceTopic.objects.store_listing(jobs.list_topics(destination.address), now=NOW, cluster=destination)
    ClusterLink.objects.update(prefix="w.")
    values = DraftValues(
        own=destination.cluster_id,
        other=source.cluster_id,
        auto_create=True,
        topic_filters=link.config(AUTO_CREATE_FILTERS),
        add_prefix=True,
        prefix="w.",
    )

    listing = jobs.list_source(source.address)
    preview = count_topics(listing=listing, values=values, destination=destination, cluster_names={}, by=SYSTEM)
    run(link)

    assert sorted(mirrored()) == sorted(preview.names) == sorted(f"w.{name}" for name in names if name not in names[1:3])
    assert preview.matched == MirrorTopic.objects.count()


def test_exclude_filter_added_later_deletes_no_mirror(link: ClusterLink, topics: list[str], filters: Filter) -> None:
    run(link)
    filters("a", "b", "secret")

    assert run(link).changes == 0
    assert mirrored() == topics[:2]


def test_a_stopped_mirror_is_not_created_again(link: ClusterLink, topics: list[str], filters: Filter) -> None:
    run(link)
    MirrorTopic.objects.update(state=MirrorState.STOPPED)

    assert run(link) == TaskOutcome(summary=run(link).summary)
    assert MirrorTopic.objects.count() == 2


def test_existing_topic_is_reported_and_not_changed(
    link: ClusterLink, topics: list[str], filters: Filter, destination_admin: AdminClient
) -> None:
    create_topics(destination_admin, NewTopic(topics[0], 3, 1))

    outcome = run(link)

    assert [error.code for error in outcome.errors] == ["TOPIC_EXISTS_ERROR"]
    assert topics[0] in outcome.errors[0].message
    assert mirrored() == topics[1:2]
    assert len(destination_admin.list_topics(topics[0], timeout=30).topics[topics[0]].partitions) == 3


def test_topic_without_read_permission_is_reported_until_it_is_granted(
    link: ClusterLink, topics: list[str], filters: Filter, source_cluster: KafkaCluster, source_admin: AdminClient
) -> None:
    denial = (
        ResourceType.TOPIC,
        topics[0],
        ResourcePatternType.LITERAL,
        f"User:{APP}",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    create_acls(source_admin, [AclBinding(*denial)])
    ClusterLink.objects.update(properties=source_cluster.client_properties(APP))

    outcome = run(link)

    assert [(error.code, topics[0] in error.message) for error in outcome.errors] == [("AUTHORIZATION_ERROR", True)]
    assert (outcome.changes, mirrored()) == (1, topics[1:2])
    assert "Grant it READ" in AutoCreateFailure.objects.get(source_topic=topics[0]).message
    assert "Grant it READ" in check_source_topic(link=link, name=topics[0]).failed[0].finding

    (lifted,) = source_admin.delete_acls([AclBindingFilter(*denial)]).values()
    lifted.result(30)

    assert run(link).errors == ()
    assert not AutoCreateFailure.objects.exists()


def test_run_is_bounded_and_the_next_one_continues(
    link: ClusterLink, topics: list[str], filters: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncs, "TRIES_PER_RUN", 1)

    first, second = run(link), run(link)

    assert (first.changes, first.more) == (1, True)
    assert (second.changes, second.more) == (1, False)
    assert mirrored() == topics[:2]


def test_topics_are_checked_in_parallel_and_an_unavailable_cluster_ends_the_run(
    link: ClusterLink, topics: list[str], filters: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, both = jobs.check_mirror_topic, Barrier(2, timeout=30)

    def check_together(setup: MirrorSetup) -> TopicDescription:
        both.wait()  # breaks if topics are checked in sequence
        return check(setup)

    monkeypatch.setattr(jobs, "check_mirror_topic", check_together)
    assert run(link).changes == 2

    MirrorTopic.objects.all().delete()
    unavailable = LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The cluster does not respond.")
    monkeypatch.setattr(jobs, "check_mirror_topic", Mock(side_effect=unavailable))
    with pytest.raises(LinkEngineError, match="does not respond"):
        run(link)
    assert not AutoCreateFailure.objects.exists()


def test_topics_that_cannot_be_mirrored_wait_for_the_next_interval(
    link: ClusterLink, topics: list[str], filters: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncs, "TRIES_PER_RUN", 1)
    monkeypatch.setattr(
        jobs, "check_mirror_topic", Mock(side_effect=LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "Grant it READ."))
    )

    first, second, third = run(link), run(link), run(link)
    AutoCreateFailure.objects.update(tried_at=NOW)
    later = run(link)

    assert [len(outcome.errors) for outcome in (first, second, third, later)] == [1, 1, 1, 1]
    assert [outcome.more for outcome in (first, second, third, later)] == [True, False, False, True]


@pytest.mark.parametrize("switched_off", [False, True], ids=["narrowed", "off"])
def test_filters_changed_during_a_run_take_effect_at_once(
    link: ClusterLink, topics: list[str], filters: Filter, monkeypatch: pytest.MonkeyPatch, *, switched_off: bool
) -> None:
    prepare, checked = plans.setup_of, []

    def change_meanwhile(mirror: MirrorTopic) -> MirrorSetup:
        checked.append(mirror.source_topic)
        filters("a", "secret")
        if switched_off:
            LinkConfig.objects.filter(link=link, name="auto.create.mirror.topics.enable").update(value="false")
        return prepare(mirror)

    monkeypatch.setattr(syncs, "AT_ONCE", 1)
    monkeypatch.setattr(plans, "setup_of", change_meanwhile)
    outcome = run(link)

    assert outcome.errors == ()
    assert (checked, mirrored()) == ((topics[:1], []) if switched_off else (topics[:2], topics[1:2]))


def test_mirror_that_auto_create_would_create_again_cannot_be_deleted(
    link: ClusterLink, topics: list[str], filters: Filter
) -> None:
    run(link)
    mirror = MirrorTopic.objects.select_related("link").get(name=topics[0])
    with pytest.raises(ConflictError, match=r"Delete the source topic first, or add an EXCLUDE filter .* or set auto\.create"):
        request_deletion(mirror=mirror, by=SYSTEM, now=NOW)

    filters("a", "secret")
    request_deletion(mirror=MirrorTopic.objects.get(pk=mirror.pk), by=SYSTEM, now=NOW)

    assert MirrorTopic.objects.get(pk=mirror.pk).deletion_requested_at is not None


def test_mirror_whose_source_topic_is_gone_can_be_deleted(
    link: ClusterLink, topics: list[str], filters: Filter, source_admin: AdminClient
) -> None:
    run(link)
    source_admin.delete_topics(topics[:1])[topics[0]].result(30)
    run(link)

    request_deletion(mirror=MirrorTopic.objects.select_related("link").get(name=topics[0]), by=SYSTEM, now=NOW)

    assert MirrorTopic.objects.get(name=topics[0]).deletion_requested_at is not None


def test_explanation_of_a_topic_matches_the_run(link: ClusterLink, topics: list[str], filters: Filter) -> None:
    AutoCreateFailure.objects.create(link=link, source_topic=topics[0], code="X", message="y", since=NOW, tried_at=NOW)
    run(link)

    standings = [check_source_topic(link=link, name=name).standing for name in topics]

    assert standings == [MirrorabilityStatus.MIRRORED, MirrorabilityStatus.MIRRORED, MirrorabilityStatus.NOT_MIRRORED]
    assert not AutoCreateFailure.objects.exists()
