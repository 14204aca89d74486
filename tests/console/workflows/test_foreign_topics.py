"""Another user's topic under a mirror's name keeps its records and configs, whatever happens to the mirror."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from console.actors import ENGINE
from console.mirrors.transitions import apply_event
from console.models import ClusterLink, MirrorTopic
from console.reconciling import due_tasks
from console.tasks.mirrors import advance_stop, delete_mirror, setup_mirror, stop_many
from devcluster.kafka import KafkaCluster
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.plans import TopicDescription
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.console.conftest import NOW
from tests.console.workflows.conftest import MakeTopic
from tests.console.workflows.reversal import records, request_operation, states, write
from tests.console.workflows.test_shapes_of_links import link_to

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("sent")]
S, E = MirrorState, MirrorEvent
Intrude = Callable[[MirrorTopic], TopicDescription]
FOREIGN = {"retention.ms": "3600000"}


def here_of(mirror: MirrorTopic) -> ClusterAdmin:
    return ClusterAdmin(mirror.link.destination.address)


@pytest.fixture
def mirror(new_mirror: MirrorTopic) -> MirrorTopic:
    """A mirror that has been set up."""
    setup_mirror(mirror_id=new_mirror.pk)
    assert states(new_mirror) == [S.ACTIVE]
    return new_mirror


@pytest.fixture
def intrude(destination_cluster: KafkaCluster) -> Intrude:
    """Replace a mirror's topic by a topic of another user with a record in it."""

    def put(mirror: MirrorTopic) -> TopicDescription:
        here = here_of(mirror)
        here.delete_topic(mirror.name)
        here.create_topic(mirror.name, partitions=2, configs=FOREIGN)
        assert write(destination_cluster, mirror.name, "theirs", user="admin") == [None]
        return here.describe(mirror.name)

    return put


def assert_untouched(others: TopicDescription, mirror: MirrorTopic, cluster: KafkaCluster) -> None:
    """The topic is the same, has its record, nothing of the console's, and is open to producers."""
    here = here_of(mirror)
    assert here.find(mirror.name) == others
    assert records(cluster, mirror.name) == {(0, 0): b"theirs"}
    assert here.offsets(mirror.name, OffsetKind.END) == {0: 1, 1: 0}
    assert not here.denies_writes(mirror.name)
    assert write(cluster, mirror.name, "more of theirs") == [None]


def fail_set_up(mirror: MirrorTopic) -> None:
    """Repeat the set-up until the existing topic fails it; a crashed worker has left its ACL."""
    for _ in range(5):
        setup_mirror(mirror_id=mirror.pk)
    assert states(mirror) == [S.FAILED]
    here_of(mirror).deny_writes(mirror.name)


def miss(mirror: MirrorTopic) -> None:
    """Fail the mirror as if its topic was missing."""
    row = MirrorTopic.objects.get(pk=mirror.pk)
    apply_event(mirror=row, event=E.FATAL, by=ENGINE, now=NOW, error_code="MIRROR_TOPIC_MISSING", error_since=NOW)


def test_delete_keeps_a_topic_that_existed_before_the_mirror(
    new_mirror: MirrorTopic, intrude: Intrude, destination_cluster: KafkaCluster
) -> None:
    others = intrude(new_mirror)
    fail_set_up(new_mirror)

    request_operation(new_mirror, E.DELETE)
    delete_mirror(mirror_id=new_mirror.pk)

    assert not MirrorTopic.objects.exists()
    assert_untouched(others, new_mirror, destination_cluster)


def test_delete_keeps_a_topic_that_replaced_the_mirrors(
    mirror: MirrorTopic, intrude: Intrude, destination_cluster: KafkaCluster
) -> None:
    others = intrude(mirror)
    miss(mirror)

    request_operation(mirror, E.DELETE)
    delete_mirror(mirror_id=mirror.pk)

    assert not MirrorTopic.objects.exists()
    assert_untouched(others, mirror, destination_cluster)


def test_failover_keeps_a_topic_that_existed_before_the_mirror(
    new_mirror: MirrorTopic, intrude: Intrude, destination_cluster: KafkaCluster
) -> None:
    others = intrude(new_mirror)
    fail_set_up(new_mirror)
    here_of(new_mirror).deny_reads(new_mirror.name)  # as a set-up does that seeds a head

    request_operation(new_mirror, E.FAILOVER)
    advance_stop(mirror_id=new_mirror.pk)

    assert states(new_mirror) == [S.STOPPED]
    assert_untouched(others, new_mirror, destination_cluster)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with others"])
def test_failover_keeps_a_topic_that_replaced_the_mirrors(
    mirror: MirrorTopic,
    intrude: Intrude,
    destination_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    together: bool,
) -> None:
    monkeypatch.setattr(due_tasks, "MANY", 1)
    others = intrude(mirror)
    miss(mirror)

    request_operation(mirror, E.FAILOVER)
    if together:
        stop_many(link_id=mirror.link_id)  # leaves it to a list of its own
    advance_stop(mirror_id=mirror.pk)

    assert states(mirror) == [S.STOPPED]
    assert "it was deleted" in mirror.transitions.get(event="fenced").detail
    assert_untouched(others, mirror, destination_cluster)


def test_delete_removes_the_topic_of_a_stopped_mirror(mirror: MirrorTopic) -> None:
    here = here_of(mirror)
    request_operation(mirror, E.FAILOVER)
    advance_stop(mirror_id=mirror.pk)
    assert not has_mirror_configs(here.describe(mirror.name).configs)

    request_operation(mirror, E.DELETE)
    delete_mirror(mirror_id=mirror.pk)

    assert here.find(mirror.name) is None


def test_delete_keeps_the_acls_of_another_mirror_with_the_same_name(
    mirror: MirrorTopic, make_topic: MakeTopic, destination_admin: AdminClient
) -> None:
    """The topic was deleted at the broker and mirrored anew by another link; then the first mirror is deleted."""
    here = here_of(mirror)
    here.delete_topic(mirror.name)
    miss(mirror)
    link = ClusterLink.objects.select_related("destination", "source").get()
    assert link.source is not None
    other = MirrorTopic.objects.create(
        link=link_to(link.destination, link.source, "other"),
        name=mirror.name,
        source_topic=mirror.source_topic,
        state_since=NOW,
        created_at=NOW,
    )
    setup_mirror(mirror_id=other.pk)
    others = here.describe(mirror.name)

    request_operation(mirror, E.DELETE)
    delete_mirror(mirror_id=mirror.pk)

    assert MirrorTopic.objects.get() == other
    assert here.describe(mirror.name) == others
    assert here.denies_writes(mirror.name)
