from dataclasses import replace

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.groups import ClampedOffset, KnownOffset, Remembered
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.offset_clamping import clamp_groups
from tests.linkengine.sync.conftest import commit, member, offsets_of

KNOWN = KnownOffset(group="app", partition=0, source=95, remembered=Remembered(source=95, destination=50))


def test_no_request_is_sent_if_every_group_is_in_place() -> None:
    unreachable = ClusterAdmin(ClusterAddress(bootstrap_servers="127.0.0.1:9"))
    equal = replace(KNOWN, source=50, remembered=Remembered(source=50, destination=50))
    raised_to_the_start = replace(KNOWN, source=5, remembered=Remembered(source=5, destination=50))

    assert clamp_groups(unreachable, "orders", ends={0: 60}, known=[equal, raised_to_the_start]) == []
    assert clamp_groups(unreachable, "orders", ends={}, known=[KNOWN]) == []


@pytest.mark.kafka
def test_a_group_beyond_the_mirrors_end_is_moved_to_the_end(here: ClusterAdmin, twin_topic: str) -> None:
    known = replace(KNOWN, group=f"{twin_topic}-app")
    commit(here, known.group, twin_topic, {0: 50}, metadata="kept")

    first = clamp_groups(here, twin_topic, ends={0: 60}, known=[known])
    second = clamp_groups(here, twin_topic, ends={0: 60}, known=[known])

    assert first == [ClampedOffset(group=known.group, partition=0, source=95, before=50, after=60)]
    assert second == [ClampedOffset(group=known.group, partition=0, source=95, before=60, after=60)]
    found, _ = here.committed([known.group])
    assert found[known.group][twin_topic, 0].metadata == "kept"


@pytest.mark.kafka
def test_a_group_moved_back_by_a_user_stays_while_a_group_beyond_the_end_is_moved(here: ClusterAdmin, twin_topic: str) -> None:
    back, beyond = replace(KNOWN, group=f"{twin_topic}-back"), replace(KNOWN, group=f"{twin_topic}-beyond", remembered=None)
    commit(here, back.group, twin_topic, {0: 3})
    commit(here, beyond.group, twin_topic, {0: 70})

    clamp_groups(here, twin_topic, ends={0: 60}, known=[back, beyond])

    assert offsets_of(here, back.group, twin_topic) == {0: 3}
    assert offsets_of(here, beyond.group, twin_topic) == {0: 60}


@pytest.mark.kafka
def test_a_group_with_members_is_reported_and_not_changed(
    here: ClusterAdmin, twin_topic: str, destination_cluster: KafkaCluster
) -> None:
    known = replace(KNOWN, group=f"{twin_topic}-app")
    commit(here, known.group, twin_topic, {0: 50})

    with member(destination_cluster, known.group, twin_topic):
        [row] = clamp_groups(here, twin_topic, ends={0: 60}, known=[known])

    assert (row.before, row.after) == (50, 50)
    assert row.message
    assert offsets_of(here, known.group, twin_topic) == {0: 50}
