"""A link is paused and resumed by its setting, on real clusters: it rests with all its syncs, while its twin goes on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.db.models import F, Q

from console.actions.linkconfigs import ConfigChange, alter_configs
from console.actors import SYSTEM
from console.api.kafka.words import mirror_status
from console.models import Cluster, ClusterLink, LinkConfig, LinkTask, MirrorPartition, MirrorTopic
from devcluster.kafka import KafkaCluster
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import LinkState, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.tasks.conftest import MakeTopic
from tests.console.tasks.grouping import commit
from tests.console.tasks.reversal import Drive, fresh, records, states, write
from tests.console.tasks.test_shapes_of_links import link_to, mirror_on

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(500), pytest.mark.usefixtures("copier")]
Seen = tuple[int, int | None, str | None]
RETENTION = "delete.retention.ms"


def following(here: Cluster, there: Cluster, *, prefix: str, groups: str) -> ClusterLink:
    """Make a link whose groups get its prefix, too, and whose syncs run every second."""
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
    changes = [ConfigChange(name=name, value=value) for name, value in configs.items()]
    alter_configs(link=ClusterLink.objects.get(pk=link.pk), changes=changes, by=SYSTEM, now=NOW)


def looking_at(here: ClusterAdmin, cluster: KafkaCluster, mirror: MirrorTopic, *, group: str) -> Callable[[], Seen]:
    """Answer how many records, which offset of the group and which retention the mirror has, whenever it is called."""

    def look() -> Seen:
        committed = here.committed([group])[0][group].get((mirror.name, 0))
        retention = here.describe(mirror.name).configs.get(RETENTION)
        return len(records(cluster, mirror.name)), committed.offset if committed else None, retention

    return look


def is_at_rest(link: ClusterLink) -> bool:
    """Tell whether the copier gave everything back and no sync is under way."""
    running = LinkTask.objects.filter(link=link).filter(Q(finished_at=None) | Q(finished_at__lt=F("started_at")))
    phases = MirrorPartition.objects.filter(mirror__link=link).values_list("phase", flat=True)
    return set(phases) == {PartitionPhase.RELEASED} and not running.exists()


def runs_of(link: ClusterLink) -> dict[str, int]:
    return dict(LinkTask.objects.filter(link=link).values_list("name", "runs"))


def test_a_paused_link_rests_with_its_syncs_and_catches_up_once_it_is_resumed(
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
        looking_at(here, destination_cluster, one, group=f"{one.link.prefix}{topic}-app") for one in (east, west)
    ]

    def use(offset: int, retention: str) -> None:
        commit(there, f"{topic}-app", topic, {0: offset})
        there.set_configs(topic, {RETENTION: retention})

    use(10, "86400000")
    drive(lambda: seen_east() == seen_west() == (200, 10, "86400000"))

    alter(west.link, **{"cluster.link.paused": "true"})
    drive(lambda: is_at_rest(west.link))
    rested = runs_of(west.link)
    assert write(source_cluster, topic, "while west is paused") == [None]
    use(50, "43200000")
    drive(lambda: seen_east() == (201, 50, "43200000"))

    assert seen_west() == (200, 10, "86400000")
    assert runs_of(west.link) == rested
    assert set(rested) == {"ConsumerOffsetSync", "TopicConfigsSync"}
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
    assert here.committed([f"{topic}-app"])[0][f"{topic}-app"] == {}  # groups have the prefixes, nothing else
