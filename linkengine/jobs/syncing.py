"""One round of following the source: find new topics, grow partitions, carry configs over."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.filters import NameFilter
from linkengine.domain.plans import MirrorSync, MirrorSynced
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.configs import read_source_configs, sync_configs
from linkengine.sync.topics import discover_topics, follow_partitions, observe_source


def sync_mirror(mirror: MirrorSync) -> MirrorSynced:
    """Make partitions and configs of a mirror follow its source once; about six requests.

    Raises SOURCE_TOPIC_MAY_BE_DELETED, SOURCE_TOPIC_ID_CHANGED, SOURCE_PARTITIONS_DECREASED and MIRROR_TOPIC_MISSING, which are
    permanent, and what keeps us from either cluster, which is not.
    """
    source, destination = ClusterAdmin(mirror.source), ClusterAdmin(mirror.destination)
    topic = observe_source(source, mirror.source_topic, topic_id=mirror.source_topic_id)
    values = read_source_configs(source, mirror.source_topic, include=mirror.sync_include)
    partitions = follow_partitions(destination, mirror.mirror_topic, partitions=topic.partitions)
    changed = sync_configs(destination, mirror.mirror_topic, source_configs=values, include=mirror.sync_include)
    return MirrorSynced(partitions=partitions, source_configs=values, changed=changed)


def discover_mirrors(
    *,
    source: ClusterAddress,
    destination: ClusterAddress,
    filters: Iterable[NameFilter],
    prefix: str = "",
    taken: Collection[str] = (),
) -> list[str]:
    """List source topics that the filters choose and that have no topic of the mirror's name yet; two requests.

    ``taken`` are mirror names the caller knows beyond the destination's topics (mirrors being set up).
    """
    existing = {*taken, *ClusterAdmin(destination).topic_names()}
    return discover_topics(ClusterAdmin(source), filters=filters, prefix=prefix, taken=existing)
