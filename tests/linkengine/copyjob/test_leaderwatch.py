"""A source leader that was cut off from its cluster's controller, on real brokers: who believes it loses records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from tests.linkengine.rooms import FAR, NEAR, Rooms, commit, far_group, leader_as_seen_by, server, write

pytestmark = pytest.mark.kafka
_Answer = TypeVar("_Answer")


@pytest.fixture(scope="module")
def all_rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rooms]:
    with Rooms(tmp_path_factory.mktemp("rooms")) as rooms:
        yield rooms


@pytest.fixture
def rooms(all_rooms: Rooms, destination_cluster: KafkaCluster, topic_name: str) -> Iterator[Rooms]:
    """With a topic of ten records, led by the far broker, and an empty mirror of it."""
    all_rooms.create_far_topic(topic_name)
    create_topic(destination_cluster, topic_name)
    write(all_rooms.cluster, topic_name, 10, broker=FAR)
    yield all_rooms
    all_rooms.open()


def test_a_copier_leaves_it_for_its_successor_within_the_slice(
    rooms: Rooms, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    source = rooms.cluster
    with Copier(plan_of((source, destination_cluster), topic_name)) as copier:
        copier.wait_for_ends({0: 10})
        rooms.shut()
        write(source, topic_name, 5, broker=NEAR)

        copier.wait_for_ends({0: 15})
        copier.wait_until(lambda one: one.phase is PartitionPhase.COPYING)
        assert leader_as_seen_by(source, FAR, topic_name) == FAR  # it has not heard of anything

    rooms.open()
    assert assert_equal_topics(source, topic_name, destination_cluster, topic_name) == 15


def test_no_promotion_takes_its_word_for_the_end(rooms: Rooms, destination_cluster: KafkaCluster, topic_name: str) -> None:
    source, known = rooms.cluster, topic_id(rooms.cluster, topic_name)
    copy_all((source, destination_cluster), topic_name)
    rooms.shut()
    write(source, topic_name, 5, broker=NEAR)
    there = replace(address(source), bootstrap_servers=server(source, FAR))

    def look() -> dict[ErrorCode, str]:
        _pool.drop(there)
        found = jobs.promotion_blockers(
            source=there, destination=address(destination_cluster), source_topic=topic_name, mirror_topic=topic_name
        )
        assert found  # or both sides were taken for equal
        return {} if ErrorCode.TIMEOUT_ERROR in dict(found) else dict(found)

    for _ in range(5):  # an admin client asks one broker, by chance, and keeps the newest it has heard of
        found = wait_for(look)
        assert found.get(ErrorCode.WAITING_FOR_LAG, "").startswith("5 offsets"), found
        assert _once_all_answer(lambda: jobs.topic_ends(there, topic_name, topic_id=known)) == {0: 15}


def test_no_restore_takes_its_word_for_what_a_topic_holds(rooms: Rooms, topic_name: str) -> None:
    there = replace(address(rooms.cluster, "admin"), bootstrap_servers=server(rooms.cluster, FAR))
    rooms.shut()
    write(rooms.cluster, topic_name, 5, broker=NEAR)

    for closed in [False, True] * 3:
        _pool.drop(there)
        [held] = _once_all_answer(lambda closed=closed: jobs.log_ranges(there, topic_name, closed=closed))
        assert (held.start, held.stable_end, held.end) == (0, 15, 15)


def test_a_topic_that_the_successor_has_filled_is_not_taken_for_an_empty_one(rooms: Rooms, topic_name: str) -> None:
    """One that a client's look has made would have to make room for a mirror."""
    topic = f"{topic_name}-new"
    there = replace(address(rooms.cluster, "admin"), bootstrap_servers=server(rooms.cluster, FAR))
    rooms.create_far_topic(topic)
    rooms.shut()
    write(rooms.cluster, topic, 1, broker=NEAR)

    for _ in range(5):
        _pool.drop(there)
        assert not _once_all_answer(lambda: jobs.delete_diverged(destination=there, topic=topic, topic_id="another one"))


def test_nobody_takes_its_word_for_what_a_consumer_group_has_committed(rooms: Rooms, topic_name: str) -> None:
    source, place = rooms.cluster, (topic_name, 0)
    there = replace(address(source, "admin"), bootstrap_servers=server(source, FAR))
    group = far_group(source, [f"{topic_name}-{number}" for number in range(20)])
    commit(source, group, topic_name, 4, broker=FAR)
    rooms.shut()
    commit(source, group, topic_name, 9, broker=NEAR)

    for _ in range(5):
        offsets, _ = _once_all_answer(lambda: ClusterAdmin(there).committed([group], stable_at=[place]))
        assert offsets[group][place].offset == 9


def test_a_promotion_waits_where_a_broker_is_silent_that_may_lead_by_now(
    rooms: Rooms, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    there = replace(address(rooms.cluster), bootstrap_servers=server(rooms.cluster, FAR))
    rooms.cluster.pause(NEAR)
    try:
        found = jobs.promotion_blockers(
            source=there, destination=address(destination_cluster), source_topic=topic_name, mirror_topic=topic_name
        )
        with pytest.raises(LinkEngineError, match=r"Not every broker of the cluster responds.*another coordinator"):
            ClusterAdmin(there).committed(["some-group"], stable_at=[(topic_name, 0)])
        with pytest.raises(LinkEngineError, match=r"Not every broker of the cluster responds.*another leader"):
            jobs.log_ranges(there, topic_name)
    finally:
        rooms.cluster.resume(NEAR)

    [(code, message)] = found
    assert code is ErrorCode.TIMEOUT_ERROR
    assert message.startswith("Not every broker of the cluster responds")


def test_a_promotion_waits_for_frozen_brokers_that_nobody_names_and_comes_back_where_all_are_frozen(
    rooms: Rooms, clusters: Pair, topic_name: str
) -> None:
    source, destination = clusters
    create_topic(source, topic_name)
    healthy, known = address(source), {"cluster_id": source.cluster_id}
    with_frozen = replace(healthy, bootstrap_servers=f"{rooms.cluster.bootstrap},{healthy.bootstrap_servers}", **known)

    def look(there: ClusterAddress) -> tuple[ErrorCode, str]:
        began = time.monotonic()
        [*_, found] = jobs.promotion_blockers(
            source=there, destination=address(destination), source_topic=topic_name, mirror_topic=topic_name
        )
        assert time.monotonic() - began < 40
        return found

    for broker in (FAR, NEAR):
        rooms.cluster.pause(broker)
    try:
        waits, all_frozen = look(with_frozen), look(replace(address(rooms.cluster), cluster_id=rooms.cluster.cluster_id))
    finally:
        for broker in (FAR, NEAR):
            rooms.cluster.resume(broker)

    assert waits[0] is all_frozen[0] is ErrorCode.TIMEOUT_ERROR
    assert "accepts connections but does not respond" in waits[1]
    assert "did not respond in time" in all_frozen[1]


def _once_all_answer(ask: Callable[[], _Answer]) -> _Answer:
    """Ask as a promotion does: again where a broker was silent for two seconds, which a busy machine's are now and then."""

    def look() -> list[_Answer]:
        try:
            return [ask()]
        except LinkEngineError as error:
            if error.code is not ErrorCode.TIMEOUT_ERROR:
                raise
            return []

    return wait_for(look)[0]
