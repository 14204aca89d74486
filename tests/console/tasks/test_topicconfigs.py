"""TopicConfigsSync on real clusters: what follows, what is set back and told, what fails for good."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from console.models import AuditEvent, ClusterLink, ConfigRevert, LinkConfig, MirrorTopic
from console.reconciling import plans
from console.tasks import mirrors, topicconfigs
from linkengine.domain.linktasks import TaskOutcome
from linkengine.domain.states import MirrorState
from linkengine.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.kafka


@pytest.fixture
def mirror(new_mirror: MirrorTopic) -> MirrorTopic:
    """A mirror that was just set up."""
    mirrors.setup_mirror(mirror_id=new_mirror.pk)
    return MirrorTopic.objects.select_related("link__destination", "link__source").get()


def run(link: ClusterLink) -> TaskOutcome:
    MirrorTopic.objects.update(synced_at=None)
    return topicconfigs.follow_topics(ClusterLink.objects.select_related("destination", "source").get(pk=link.pk))


def test_a_local_edit_is_set_back_and_told_where_people_look(mirror: MirrorTopic) -> None:
    here = ClusterAdmin(mirror.link.destination.address)
    here.set_configs(mirror.name, {"retention.ms": "60000"})

    outcome = run(mirror.link)

    assert (outcome.errors, outcome.changes) == ((), 1)
    assert here.describe(mirror.name).configs["retention.ms"] == "-1"
    note = ConfigRevert.objects.get()
    assert (note.name, note.found, note.restored) == ("retention.ms", "60000", "-1")
    event = AuditEvent.objects.get(action="RevertTopicConfigs")
    assert (event.actor, event.resource.endswith(mirror.name)) == ("engine", True)
    assert run(mirror.link).changes == 0


def test_a_link_that_leaves_retention_out_gives_its_mirrors_their_own(
    mirror: MirrorTopic, destination_admin: AdminClient
) -> None:
    assert plans.assignments_of(mirror)[0].follows_start
    LinkConfig.objects.create(link=mirror.link, name="topic.config.sync.include", value="delete.retention.ms")

    outcome = run(mirror.link)

    assert outcome.errors == ()
    fresh = MirrorTopic.objects.select_related("link").get()
    assert not any(one.follows_start for one in plans.assignments_of(fresh))
    resource = ConfigResource(ConfigResource.Type.TOPIC, mirror.name)
    entries = destination_admin.describe_configs([resource])[resource].result(30)
    assert entries["retention.ms"].is_default
    assert not ConfigRevert.objects.exists()


def test_a_mirror_that_somebody_deleted_fails_and_stops_no_other(mirror: MirrorTopic) -> None:
    ClusterAdmin(mirror.link.destination.address).delete_topic(mirror.name)

    outcome = run(mirror.link)

    assert [one.code for one in outcome.errors] == ["MIRROR_TOPIC_MISSING"]
    assert MirrorTopic.objects.get().state == MirrorState.FAILED
    assert run(mirror.link).errors == ()  # nothing is left to compare
