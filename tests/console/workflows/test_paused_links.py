"""A link is paused and resumed by its config, on real clusters: copying and all its syncs pause, and another link continues."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.db.models import F, Q

from console.actors import SYSTEM
from console.api.kafka_schemas import mirror_status
from console.links.actions import LinkConfigChange, alter_configs
from console.models import Cluster, ClusterLink, LinkConfig, LinkTask, MirrorPartition, MirrorTopic
from devcluster.kafka import KafkaCluster
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import LinkState, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.workflows.conftest import MakeTopic
from tests.console.workflows.grouping import commit
from tests.console.workflows.reversal import Drive, fresh, records, states, write
from tests.console.workflows.test_shapes_of_links import link_to, mirror_on

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(500), pytest.mark.usefixtures("copier")]
Seen = tuple[int, int | None, str | None]
RETENTION = "delete.retention.ms"


def following(here: Cluster, there: Cluster, *, prefix: str, groups: str) -> ClusterLink:
    """Create a link whose groups get its prefix too, and whose syncs run every second."""
    link = link_to(here, there, prefix.rstrip("."), prefix=prefix)
    LinkConfig.objects.create(link=link, name="cluster.link.prefix", value=prefix)
    chosen = {"name": groups, "patternType": "PREFIXED", "filterType": "INCLUDE"}
    alter(
        link,
        **{
            "consumer.group.prefix.enable": "true",
            "consumer.offset.sync.enable": "true",
            "consumer.offset.group.filters": json.dumps({"groupFilters": [chosen]}),
            "consumer.offset.sync.ms": "1000",
            "topic.config.sync.ms": "1000",
        },
    )
    return link


def alter(link: ClusterLink, **configs: str) -> None:
    changes = [LinkConfigChange(name=name, value=value) for name, value in configs.items()]
    alter_configs(link=ClusterLink.objects.get(pk=link.pk), changes=changes, by=SYSTEM, now=NOW)


def reader_of(here: ClusterAdmin, cluster: KafkaCluster, mirror: MirrorTopic, *, group: str) -> Callable[[], Seen]:
    """Return a function that reads the mirror's record count, the group's offset and the mirror's retention."""

    def read() -> Seen:
        committed = here.committed([group])[0][group].get((mirror.name, 0))
        retention = here.describe(mirror.name).configs.get(RETENTION)
        return len(records(cluster, mirror.name)), committed.offset if committed else None, retention

    return read


def is_settled(link: ClusterLink) -> bool:
    """Return whether all leases are released and no sync is running."""
    running = LinkTask.objects.filter(link=link).filter(Q(finished_at=None) | Q(finished_at__lt=F("started_at")))
    phases = MirrorPartition.objects.filter(mirror__link=link).values_list("phase", flat=True)
    return set(phases) == {PartitionPhase.RELEASED} and not running.exists()


def runs_of(link: ClusterLink) -> dict[str, int]:
    return dict(LinkTask.objects.filter(link=link).values_list("name", "runs"))


def test_paused_link_pauses_its_syncs_and_catches_up_once_it_is_resumed(
    source: Cluster,
    destination: Cluster,
    make_topic: MakeTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    topic = make_topic()
    there, here = ClusterAdmin(source.address), ClusterAdmin(destination.address)
    links = [following(destination, source, prefix=prefix, groups=topic) for prefix in ("east.", "west.")]
    east, west = [mirror_on(link, topic) for link in links]
    seen_east, seen_west = [
        reader_of(here, destination_cluster, mirror, group=f"{mirror.link.prefix}{topic}-app") for mirror in (east, west)
    ]

    def use(offset: int, retention: str) -> None:
        commit(there, f"{topic}-app", topic, {0: offset})
        there.set_configs(topic, {RETENTION: retention})

    use(10, "86400000")
    drive(lambda: seen_east() == seen_west() == (200, 10, "86400000"))

    alter(west.link, **{"cluster.link.paused": "true"})
    drive(lambda: is_settled(west.link))
    runs_at_pause = runs_of(west.link)
    assert write(source_cluster, topic, "while west is paused") == [None]
    use(50, "43200000")
    drive(lambda: seen_east() == (201, 50, "43200000"))

    assert seen_west() == (200, 10, "86400000")
    assert runs_of(west.link) == runs_at_pause
    assert set(runs_at_pause) == {"ConsumerOffsetSync", "TopicConfigsSync"}
    row = fresh(west)
    assert (row.state, row.link.state, mirror_status(row.state, link_state=row.link.state)) == (
        MirrorState.ACTIVE,
        LinkState.PAUSED,
        "LINK_PAUSED",
    )

    alter(west.link, **{"cluster.link.paused": "false"})
    drive(lambda: seen_west() == (201, 50, "43200000"))
    assert states(east, west) == [MirrorState.ACTIVE] * 2
    assert records(destination_cluster, west.name) == records(source_cluster, topic)
    assert here.committed([f"{topic}-app"])[0][f"{topic}-app"] == {}  # only groups with a prefix exist
