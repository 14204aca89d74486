from dataclasses import replace

import pytest

from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.filters import NameFilter, PatternType
from linkengine.domain.plans import MirrorSetup, MirrorSync
from linkengine.jobs.setup import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.kafka


@pytest.fixture
def mirror(setup_plan: MirrorSetup, assignments: AssignmentsFactory, source_topic: str) -> MirrorSync:
    """A mirror that was just set up."""
    created = jobs.setup_mirror(setup_plan, assignments_factory=assignments)
    return MirrorSync(
        source=setup_plan.source,
        destination=setup_plan.destination,
        source_topic=source_topic,
        source_topic_id=created.source_topic_id,
        mirror_topic=source_topic,
    )


def test_a_mirror_follows_partitions_and_configs_of_its_source(
    mirror: MirrorSync, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    there.add_partitions(mirror.source_topic, total=4)
    there.set_configs(mirror.source_topic, {"cleanup.policy": "compact", "retention.ms": "5000"})

    synced = jobs.sync_mirror(mirror)

    assert (synced.partitions, synced.changed) == (4, ("cleanup.policy",))
    assert (synced.source_configs["cleanup.policy"], synced.source_configs["retention.ms"]) == ("compact", "5000")
    assert here.describe(mirror.mirror_topic).partitions == 4
    assert here.describe(mirror.mirror_topic).configs["cleanup.policy"] == "compact,delete"


def test_a_second_round_changes_nothing(mirror: MirrorSync) -> None:
    assert jobs.sync_mirror(mirror) == replace(jobs.sync_mirror(mirror), changed=())


def test_a_deleted_source_topic_and_a_deleted_mirror_are_permanent_errors(
    mirror: MirrorSync, there: ClusterAdmin, here: ClusterAdmin
) -> None:
    here.delete_topic(mirror.mirror_topic)
    with pytest.raises(LinkEngineError) as missing:
        jobs.sync_mirror(mirror)
    there.delete_topic(mirror.source_topic)
    with pytest.raises(LinkEngineError) as deleted:
        jobs.sync_mirror(mirror)

    assert missing.value.code is ErrorCode.MIRROR_TOPIC_MISSING
    assert deleted.value.code is ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED


def test_topics_without_a_mirror_are_discovered(mirror: MirrorSync, there: ClusterAdmin) -> None:
    fresh, promised = f"{mirror.source_topic}.new", f"{mirror.source_topic}.promised"
    there.create_topic(fresh, partitions=1)
    there.create_topic(promised, partitions=1)

    found = jobs.discover_mirrors(
        source=mirror.source,
        destination=mirror.destination,
        filters=[NameFilter(name=mirror.source_topic, pattern_type=PatternType.PREFIXED)],
        taken={promised},
    )

    assert found == [fresh]
