"""A mirror whose groups are synced, on real clusters, with records written by the test; and changes in the middle of a sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.actors import SYSTEM
from console.mirrors.operation_actions import operate
from console.models import LinkConfig, MirrorTopic
from console.tasks.mirrors import advance_stop, setup_mirror
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.workflows.grouping import copy_in, fill

Interleave = Callable[[Callable[[], None]], None]


@pytest.fixture
def mirror(new_mirror: MirrorTopic, destination_cluster: KafkaCluster) -> MirrorTopic:
    """A mirror of 100 records in each of two partitions, of which 60 are copied; groups named like the topic are synced."""
    filters = f'{{"groupFilters": [{{"name": "{new_mirror.name}", "patternType": "PREFIXED", "filterType": "INCLUDE"}}]}}'
    for name, value in (("consumer.offset.sync.enable", "true"), ("consumer.offset.group.filters", filters)):
        LinkConfig.objects.create(link=new_mirror.link, name=name, value=value)
    setup_mirror(mirror_id=new_mirror.pk)
    copy_in(destination_cluster, new_mirror, records=range(60))
    return MirrorTopic.objects.select_related("link__destination__environment").get(pk=new_mirror.pk)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Interleave:
    """Run something once in the middle of a sync: after it has read the source's offsets, before it reads the mirror."""
    read = ClusterAdmin.committed

    def interleave(action: Callable[[], None]) -> None:
        def committed(admin: ClusterAdmin, *arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(ClusterAdmin, "committed", read)
            found = read(admin, *arguments, **options)
            action()
            return found

        monkeypatch.setattr(ClusterAdmin, "committed", committed)

    return interleave


@pytest.fixture
def fail_over(mirror: MirrorTopic, destination_cluster: KafkaCluster) -> Callable[[], None]:
    """Fail the mirror over completely, with new producers: 50 records in each partition behind the fence."""

    def run() -> None:
        operate(mirror=MirrorTopic.objects.get(pk=mirror.pk), operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)
        advance_stop(mirror_id=mirror.pk)
        assert MirrorTopic.objects.get(pk=mirror.pk).state == MirrorState.STOPPED
        fill(destination_cluster, mirror.name, records=range(50))

    return run
