"""A source leader that was cut off from its controllers, on real brokers: trusting it would lose records."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pytest

from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.admin_session import _pool
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    address,
    assert_equal_topics,
    copy_all,
    create_topic,
    plan_of,
    topic_id,
    wait_for,
)
from tests.linkengine.split_brain import FAR, NEAR, SplitCluster, commit, far_group, leader_as_seen_by, server, write

pytestmark = pytest.mark.kafka
_Result = TypeVar("_Result")


@pytest.fixture(scope="module")
def all_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplitCluster]:
    with SplitCluster(tmp_path_factory.mktemp("split")) as split_cluster:
        yield split_cluster


@pytest.fixture
def split_cluster(all_brokers: SplitCluster, destination_cluster: KafkaCluster, topic_name: str) -> Iterator[SplitCluster]:
    """Yield the split cluster with a topic of ten records, led by the far broker, and an empty mirror of it."""
    all_brokers.create_far_topic(topic_name)
    create_topic(destination_cluster, topic_name)
    write(all_brokers.cluster, topic_name, 10, broker=FAR)
    yield all_brokers
    all_brokers.open()


def test_copy_worker_leaves_a_cut_off_leader_for_its_successor(
    split_cluster: SplitCluster, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    source = split_cluster.cluster
    with Copier(plan_of((source, destination_cluster), topic_name)) as copier:
        copier.wait_for_ends({0: 10})
        split_cluster.shut()
        write(source, topic_name, 5, broker=NEAR)

        copier.wait_for_ends({0: 15})
        copier.wait_until(lambda progress: progress.phase is PartitionPhase.COPYING)
        assert leader_as_seen_by(source, FAR, topic_name) == FAR  # it does not know of the change

    split_cluster.open()
    assert assert_equal_topics(source, topic_name, destination_cluster, topic_name) == 15


@dataclass(frozen=True, kw_only=True)
class CutOffLeader:
    """The far broker is cut off. Since then its successor has got five records, a record, and the offset 9 of a group."""

    source: KafkaCluster
    topic: str  # has ten records from before, which its mirror has as well
    topic_id: str
    new_topic: str  # was empty
    group: str

    def there(self, user: str = "link") -> ClusterAddress:
        """Return the address by which clients reach the far broker first."""
        return replace(address(self.source, user), bootstrap_servers=server(self.source, FAR))


@pytest.fixture(scope="class")
def cut_off(all_brokers: SplitCluster, destination_cluster: KafkaCluster) -> Iterator[CutOffLeader]:
    source, topic = all_brokers.cluster, f"topic-{secrets.token_hex(6)}"
    new_topic = f"{topic}-new"
    create_topic(destination_cluster, topic)
    for name in (topic, new_topic):
        all_brokers.create_far_topic(name)
    write(source, topic, 10, broker=FAR)
    copy_all((source, destination_cluster), topic)
    group = far_group(source, [f"{topic}-{number}" for number in range(20)])
    commit(source, group, topic, 4, broker=FAR)
    found = CutOffLeader(source=source, topic=topic, topic_id=topic_id(source, topic), new_topic=new_topic, group=group)
    all_brokers.shut()
    try:
        write(source, topic, 5, broker=NEAR)
        write(source, new_topic, 1, broker=NEAR)
        commit(source, group, topic, 9, broker=NEAR)
        yield found
    finally:
        all_brokers.open()


class TestCutOffLeader:
    """Each read is repeated: an admin client queries a random broker, and keeps the newest metadata."""

    def test_promotion_reads_the_end_from_the_successor(self, cut_off: CutOffLeader, destination_cluster: KafkaCluster) -> None:
        there, topic = cut_off.there(), cut_off.topic

        def read_blockers() -> dict[ErrorCode, str]:
            _pool.drop(there)
            found = jobs.promotion_blockers(
                source=there, destination=address(destination_cluster), source_topic=topic, mirror_topic=topic
            )
            assert found  # otherwise both sides were considered equal
            return {} if ErrorCode.TIMEOUT_ERROR in dict(found) else dict(found)

        for _ in range(5):
            found = wait_for(read_blockers)
            assert found.get(ErrorCode.WAITING_FOR_LAG, "").startswith("5 offsets"), found
            assert _retry_timeouts(lambda: jobs.topic_ends(there, topic, topic_id=cut_off.topic_id)) == {0: 15}

    def test_restore_reads_log_ranges_from_the_successor(self, cut_off: CutOffLeader) -> None:
        there = cut_off.there("admin")
        for closed in [False, True] * 3:
            _pool.drop(there)
            [held] = _retry_timeouts(partial(jobs.log_ranges, there, cut_off.topic, closed=closed))
            assert (held.start, held.stable_end, held.end) == (0, 15, 15)

    def test_topic_is_not_deleted_as_empty_if_the_successor_has_records(self, cut_off: CutOffLeader) -> None:
        """An empty topic that a client created by looking it up would be deleted for a mirror."""
        there, topic = cut_off.there("admin"), cut_off.new_topic
        for _ in range(5):
            _pool.drop(there)
            assert not _retry_timeouts(lambda: jobs.delete_diverged(destination=there, topic=topic, topic_id="another one"))

    def test_committed_offsets_are_read_from_the_successor_of_the_coordinator(self, cut_off: CutOffLeader) -> None:
        there, place = cut_off.there("admin"), (cut_off.topic, 0)
        for _ in range(5):
            offsets, _ = _retry_timeouts(lambda: ClusterAdmin(there).committed([cut_off.group], stable_at=[place]))
            assert offsets[cut_off.group][place].offset == 9


def test_promotion_waits_while_a_broker_that_may_be_the_leader_does_not_respond(
    split_cluster: SplitCluster, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    there = replace(address(split_cluster.cluster), bootstrap_servers=server(split_cluster.cluster, FAR))
    split_cluster.cluster.pause(NEAR)
    try:
        found = jobs.promotion_blockers(
            source=there, destination=address(destination_cluster), source_topic=topic_name, mirror_topic=topic_name
        )
        with pytest.raises(LinkEngineError, match=r"Not every broker of the cluster responds.*another coordinator"):
            ClusterAdmin(there).committed(["some-group"], stable_at=[(topic_name, 0)])
        with pytest.raises(LinkEngineError, match=r"Not every broker of the cluster responds.*another leader"):
            jobs.log_ranges(there, topic_name)
    finally:
        split_cluster.cluster.resume(NEAR)

    [(code, message)] = found
    assert code is ErrorCode.TIMEOUT_ERROR
    assert message.startswith("Not every broker of the cluster responds")


def test_promotion_check_ends_in_time_if_some_or_all_brokers_are_frozen(
    split_cluster: SplitCluster, clusters: Pair, topic_name: str
) -> None:
    source, destination = clusters
    create_topic(source, topic_name)
    healthy = address(source)
    with_frozen = replace(
        healthy,
        bootstrap_servers=f"{split_cluster.cluster.bootstrap},{healthy.bootstrap_servers}",
        cluster_id=source.cluster_id,
    )

    def read_blocker(there: ClusterAddress) -> tuple[ErrorCode, str]:
        began = time.monotonic()
        [*_, found] = jobs.promotion_blockers(
            source=there, destination=address(destination), source_topic=topic_name, mirror_topic=topic_name
        )
        assert time.monotonic() - began < 40
        return found

    for broker in (FAR, NEAR):
        split_cluster.cluster.pause(broker)
    try:
        waits, all_frozen = (
            read_blocker(with_frozen),
            read_blocker(replace(address(split_cluster.cluster), cluster_id=split_cluster.cluster.cluster_id)),
        )
    finally:
        for broker in (FAR, NEAR):
            split_cluster.cluster.resume(broker)

    assert waits[0] is all_frozen[0] is ErrorCode.TIMEOUT_ERROR
    assert "accepts connections but does not respond" in waits[1]
    assert "did not respond in time" in all_frozen[1]


def _retry_timeouts(read: Callable[[], _Result]) -> _Result:
    """Retry as a promotion does when a broker was silent for two seconds, which happens on a busy machine."""

    def attempt() -> list[_Result]:
        try:
            return [read()]
        except LinkEngineError as error:
            if error.code is not ErrorCode.TIMEOUT_ERROR:
                raise
            return []

    return wait_for(attempt)[0]
