"""Fences on a real broker: the mirrored end, and that no stale copy worker writes behind it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.resume.log_end import read_log_ends
from linkengine.copyjob.stop import fence as fence_module
from linkengine.copyjob.stop.fence import PATIENCE_S, SHORT_PATIENCE_S, Fence, fence_partitions, write_marker
from linkengine.copyjob.stop.takeover import foreign_starts
from linkengine.copyjob.values import LogEnd, LogEndQuery
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import CopyPlan, PartitionPhase
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    create_pair,
    ends_of,
    fence,
    plan_of,
    producer_for,
    wait_for,
)
from tests.linkengine.copyjob.memory import NoLease
from tests.linkengine.copyjob.rawwriter import read_batches_of


def write(cluster: KafkaCluster, topic: str, count: int, *, partition: int = 0) -> None:
    producer = producer_for(cluster)
    for number in range(count):
        producer.produce(topic, value=f"{number}", partition=partition)
    producer.flush()


def copied_plan(clusters: Pair, topic: str) -> CopyPlan:
    """Copy 25 records with a copy worker that has ended; return its plan."""
    create_pair(clusters, topic)
    write(clusters[0], topic, 25)
    plan = plan_of(clusters, topic)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 25})
    return plan


def write_fence(plan: CopyPlan) -> None:
    """Write the fence of a stop without recording it."""
    assignment, cluster = plan.assignments[0], Cluster(plan.destination)
    log_end = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=True)])[assignment.key]
    assert isinstance(log_end, LogEnd)
    write_marker(cluster, assignment, log_end, generation=100, commit=True)
    cluster.close()


def test_fencing_returns_the_mirrored_ends_and_is_idempotent(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name, partitions=2)
    write(clusters[0], topic_name, 25)
    plan = plan_of(clusters, topic_name, partitions=2)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 25, 1: 0})

    ends = [fence(plan) for _ in range(2)]

    assert ends == [{0: 25, 1: 0}] * 2
    assert ends_of(clusters[1], topic_name, partitions=2) == {0: 26, 1: 1}


def test_end_is_at_the_first_of_two_fences_if_a_response_was_lost(clusters: Pair, topic_name: str) -> None:
    plan = copied_plan(clusters, topic_name)
    for _ in range(2):
        write_fence(plan)

    assert fence(plan) == {0: 25}
    assert ends_of(clusters[1], topic_name) == {0: 27}


def test_unrecorded_fence_ends_the_mirrored_part(clusters: Pair, topic_name: str) -> None:
    """Its writer crashed before the ends were recorded, and applications have written since."""
    plan = copied_plan(clusters, topic_name)
    write_fence(plan)
    write(clusters[1], topic_name, 3)

    fences = fence(plan)

    assert fences == {0: 29}
    for copied in (25, 10):
        assert foreign_starts(plan.destination, plan.assignments, fences=fences, copied={0: copied}) == {0: 25}


@contextmanager
def application_writing(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    """Write a batch every two milliseconds, as an application that is not kept out."""
    producer, over, begun = producer_for(cluster, linger_ms=0), Event(), Event()

    def write_batches() -> None:
        while not over.wait(0.002):
            producer.produce(topic, value="foreign", on_delivery=lambda *_: begun.set())
            producer.poll(0)

    thread = Thread(target=write_batches)
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        over.set()
        thread.join()
        assert producer.flush(60) == 0


@pytest.mark.timeout(120)
def test_mirror_is_fenced_in_time_while_an_application_writes(clusters: Pair, topic_name: str) -> None:
    plan = copied_plan(clusters, topic_name)

    with application_writing(clusters[1], topic_name):
        began = time.monotonic()
        fences = fence(plan)
        took_s = time.monotonic() - began
        ends = foreign_starts(plan.destination, plan.assignments, fences=fences, copied={0: 25})

    markers = [view.base_offset for view, _ in read_batches_of(clusters[1], topic_name) if view.is_control]
    assert (markers, ends) == ([fences[0]], {0: 25})
    assert took_s < PATIENCE_S / 2


@pytest.mark.parametrize("mirrored", [10, 0], ids=["mirror with records", "empty mirror"])
@pytest.mark.parametrize("patient", [True, False], ids=["alone", "with other mirrors"])
def test_stale_copy_worker_cannot_write_behind_the_fence(clusters: Pair, topic_name: str, patient: bool, mirrored: int) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name)
    write(source, topic_name, mirrored)
    plan = plan_of(clusters, topic_name)
    with Copier(plan, lease=NoLease()) as copier:
        copier.wait_for_ends({0: mirrored})

        assert fence(plan, patient=patient) == {0: mirrored}
        write(source, topic_name, 10)

        wait_for(lambda: copier.progress.latest[plan.assignments[0].key].phase is PartitionPhase.RELEASED)
        time.sleep(0.3)

    assert ends_of(destination, topic_name) == {0: mirrored + 1}


def test_new_owner_without_knowledge_of_the_stop_cannot_write_behind_the_fence(clusters: Pair, topic_name: str) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name)
    write(source, topic_name, 10)
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 10})
    fence(plan, generation=1)
    write(destination, topic_name, 5)  # the topic is an ordinary topic now
    write(source, topic_name, 30)

    with Copier(plan) as late:  # its lease is empty, and the plan still assigns the partition
        late.wait_until(lambda progress: progress.phase is PartitionPhase.RELEASED)

    assert ends_of(destination, topic_name) == {0: 16}
    (last_report,) = late.join()
    assert (last_report.phase, last_report.error_code) == (PartitionPhase.RELEASED, ErrorCode.MIRROR_WAS_STOPPED)
    assert "Fail over to keep it as it is." in last_report.error_message


def test_partition_that_cannot_be_fenced_does_not_delay_the_others(clusters: Pair, topic_name: str) -> None:
    """Partition 1 does not exist. Its error follows when the patience for it is over, seconds later."""
    plan = copied_plan(clusters, topic_name)
    missing = replace(plan.assignments[0], partition=1)
    partitions = (missing, *plan.assignments)
    generations = {assignment.key: 100 for assignment in partitions}

    began = time.monotonic()
    rounds = [
        (found, time.monotonic() - began)
        for found in fence_partitions(plan.destination, partitions, generations=generations, patient=False)
    ]

    (first, first_s), (last, last_s) = rounds
    assert first == {plan.assignments[0].key: Fence(end=25, epoch=0)}
    assert isinstance(last[missing.key], LinkEngineError)
    assert first_s < SHORT_PATIENCE_S < last_s


def test_each_of_many_partitions_is_tried_although_the_time_is_over(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_pair(clusters, topic_name, partitions=5)
    plan = plan_of(clusters, topic_name, partitions=5)
    monkeypatch.setattr(fence_module, "PER_ROUND", 2)
    monkeypatch.setattr(fence_module, "SHORT_PATIENCE_S", 0.0)
    write_markers = fence_module._send_markers
    monkeypatch.setattr(
        fence_module, "_send_markers", lambda cluster, markers, timeout_s: write_markers(cluster, markers, timeout_s=60.0)
    )
    generations = {partition.key: 9 for partition in plan.assignments}

    found = list(fence_partitions(plan.destination, plan.assignments, generations=generations, patient=False))

    assert [len(fences) for fences in found] == [2, 2, 1]
    assert all(isinstance(fence, Fence) and fence.end == 0 for fences in found for fence in fences.values())


def test_mirror_that_may_end_with_a_fence_is_left_to_a_patient_call(clusters: Pair, topic_name: str) -> None:
    """Only a patient call reads logs. Neither writes a second fence."""
    plan = copied_plan(clusters, topic_name)
    write_fence(plan)

    with pytest.raises(LinkEngineError):
        fence(plan, patient=False)

    assert fence(plan) == {0: 25}
    assert ends_of(clusters[1], topic_name) == {0: 26}


def test_lost_response_of_a_marker_is_made_up_for_by_the_log(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, send = copied_plan(clusters, topic_name), fence_module._send_to

    def lose(*arguments: Any, **options: Any) -> dict[str, LinkEngineError]:
        send(*arguments, **options)
        return {plan.assignments[0].key: LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response.")}

    monkeypatch.setattr(fence_module, "_send_to", lose)

    assert fence(plan, patient=False) == {0: 25}
    assert ends_of(clusters[1], topic_name) == {0: 26}


def test_former_leader_is_not_asked_for_its_high_watermark(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be frozen since it took the marker: each request would delay the fences of other partitions by seconds."""
    plan = copied_plan(clusters, topic_name)
    asked: list[int] = []
    leaders: list[Leader] = []

    def read_from_new_leader(cluster: Cluster, queries: Sequence[LogEndQuery]) -> dict[str, LogEnd | LinkEngineError]:
        found = read_log_ends(cluster, queries)
        for key, log_end in found.items():
            assert isinstance(log_end, LogEnd)
            leaders.append(log_end.leader)
            if len(leaders) == 1:  # the marker is sent to this leader; the next reading finds another one
                found[key] = replace(log_end, leader=replace(log_end.leader, epoch=log_end.leader.epoch - 1))
        return found

    def list_offsets(_cluster: Cluster, broker: int, *_: object, **__: object) -> dict[tuple[str, int], tuple[int, int]]:
        asked.append(broker)
        return {}

    monkeypatch.setattr(fence_module, "read_log_ends", read_from_new_leader)
    monkeypatch.setattr(fence_module, "list_offsets", list_offsets)

    assert fence(plan) == {0: 25}
    assert not asked


def test_late_marker_of_an_earlier_round_is_the_fence(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is appended after the round in which it was sent, and before the next marker."""
    plan, send = copied_plan(clusters, topic_name), fence_module._send_to
    held: list[Any] = []

    def send_late(*arguments: Any, **options: Any) -> dict[str, LinkEngineError]:
        held.append((arguments, options))
        if len(held) == 1:
            return {plan.assignments[0].key: LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response.")}
        errors: dict[str, LinkEngineError] = {}
        for sent, how in held:
            errors |= send(*sent, **how)
        return errors

    monkeypatch.setattr(fence_module, "_send_to", send_late)

    assert fence(plan) == {0: 25}
    assert ends_of(clusters[1], topic_name) == {0: 27}


def test_requests_do_not_wait_for_each_other(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that is stuck delays the response to each request of its leaders by the whole time limit."""
    create_pair(clusters, topic_name, partitions=4)
    at_once, send = Barrier(4, timeout=10.0), fence_module._send_to

    def send_together(*arguments: Any, **options: Any) -> dict[str, LinkEngineError]:
        at_once.wait()
        return send(*arguments, **options)

    monkeypatch.setattr(fence_module, "PER_REQUEST", 1)
    monkeypatch.setattr(fence_module, "_send_to", send_together)

    assert fence(plan_of(clusters, topic_name, partitions=4)) == dict.fromkeys(range(4), 0)
