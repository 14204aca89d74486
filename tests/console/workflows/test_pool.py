"""The pool of copy workers, on a real Redis and without Spark: which workers are submitted, what they copy, which end."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from console.config import signing_keys
from console.models import ClusterLink, CopyWorker, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.redis import heartbeats as redis_health
from console.redis import locks, redis_client
from console.tasks.links import reconcile_link, run_copy_worker
from console.workflows import pool
from linkengine import jobs
from linkengine.coordination.pool import RedisAssignments
from linkengine.domain.states import LinkState, MirrorState
from linkengine.domain.workers import AssignmentStatus, Heartbeat, PoolWorker, assign, worker_id_for
from tests.console.conftest import NOW, MakeMirror

Sent = list[tuple[str, dict[str, Any]]]


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str, sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/6"
    settings.COPY_WORKERS = 2
    redis_client().flushdb()
    redis_client().set("console:copy-workers-since", 1)  # Redis has run for long
    monkeypatch.setattr(pool, "HEARTBEAT_CACHE_S", 0.0)


class Worker:
    """A copy worker as the console sees it: it sends heartbeats and reads its assignments."""

    def __init__(self, number: int, name: str = "a", *, known: bool = True) -> None:
        self.worker_id = worker_id_for(number, name)
        if known:
            CopyWorker.objects.update_or_create(number=number, defaults={"worker_id": self.worker_id, "submitted_at": NOW})
        setup = jobs.setup_worker(
            self.worker_id, redis_url=django_settings.REDIS_URL, secrets=signing_keys.worker_secrets(), lease_ttl_ms=4_000
        )
        self._assignments = RedisAssignments(setup)
        self.beat()

    def beat(self, **shown: Any) -> None:
        assignments = self._assignments.read()
        links = {name: AssignmentStatus(applied=number, **shown) for name, number in assignments.numbers.items()}
        self._assignments.beat(Heartbeat(worker_id=self.worker_id, host="h", links=links))

    def keys(self, link: ClusterLink) -> set[str]:
        plan = self._assignments.read().plans.get(plans.link_key(link))
        return set() if plan is None else {partition.key for partition in plan.assignments}

    @property
    def ends(self) -> bool:
        return self._assignments.read().ends


def silence(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Hide the heartbeats of these workers."""
    real = jobs.read_workers

    def read(*args: Any, **kwargs: Any) -> list[Heartbeat]:
        return [beat for beat in real(*args, **kwargs) if beat.worker_id not in names]

    monkeypatch.setattr(jobs, "read_workers", read)


def placed() -> dict[str, int]:
    names = list(MirrorPartition.objects.values_list("worker_id", flat=True))
    return {name: names.count(name) for name in set(names)}


def submitted(sent: Sent) -> list[int]:
    return [kwargs["number"] for name, kwargs in sent if name == "run_copy_worker"]


def test_configured_number_of_workers_is_submitted(mirror: MirrorTopic, sent: Sent) -> None:
    for _ in range(2):
        pool.maintain_workers()

    assert submitted(sent) == [0, 1]


def test_without_links_no_worker_is_submitted_and_running_ones_end(db: None, sent: Sent) -> None:
    worker = Worker(0)

    pool.maintain_workers()

    assert submitted(sent) == []
    assert worker.ends


def test_number_with_a_waiting_thread_is_not_submitted(mirror: MirrorTopic, sent: Sent) -> None:
    with locks.lock(pool.lock_name(0)), locks.lock(pool.lock_name(1)):
        pool.maintain_workers()

    assert submitted(sent) == []


def test_failed_job_is_submitted_again_after_its_backoff(mirror: MirrorTopic, sent: Sent) -> None:
    for number, wait_s in ((0, 20), (1, -1)):
        CopyWorker.objects.create(number=number, failures=3, retry_at=timezone.now() + timedelta(seconds=wait_s / 4))

    pool.maintain_workers()

    assert submitted(sent) == [1]


def test_live_worker_without_a_waiting_thread_is_replaced_after_a_while(mirror: MirrorTopic, sent: Sent) -> None:
    Worker(0), Worker(1)

    pool.maintain_workers()
    assert submitted(sent) == []
    CopyWorker.objects.filter(number=1).update(left_at=timezone.now() - pool.REPLACE_AFTER)
    pool.maintain_workers()

    assert submitted(sent) == [1]


def test_replaced_worker_is_drained_gradually_and_then_ends(link: ClusterLink, make_mirror: MakeMirror, sent: Sent) -> None:
    make_mirror(partitions=20)
    old = Worker(0)
    reconcile_link(link_id=link.pk)
    assert placed() == {old.worker_id: 20}
    new = Worker(0, "b")

    left = []
    for _ in range(12):
        locks.release_claim("copy-balance")
        pool.maintain_workers()
        reconcile_link(link_id=link.pk)
        left.append(len(old.keys(link)))
        for worker in (old, new):
            worker.beat()

    assert left == [18, 16, 14, 12, 10, 8, 6, 4, 2, 0, 0, 0]
    assert len(new.keys(link)) == 20
    assert old.ends
    assert not new.ends


def test_smaller_pool_ends_the_workers_with_the_highest_numbers(
    link: ClusterLink, make_mirror: MakeMirror, settings: Any
) -> None:
    make_mirror(partitions=2)
    first, second = Worker(0), Worker(1)
    reconcile_link(link_id=link.pk)
    assert placed() == {first.worker_id: 1, second.worker_id: 1}
    settings.COPY_WORKERS = 1

    for _ in range(2):
        locks.release_claim("copy-balance")
        pool.maintain_workers()

    assert placed() == {first.worker_id: 2}
    assert second.ends


def test_new_partition_is_placed_and_assigned_in_the_same_pass(link: ClusterLink, make_mirror: MakeMirror) -> None:
    workers = [Worker(0), Worker(1)]
    mirror = make_mirror(partitions=4)

    reconcile_link(link_id=link.pk)

    assert sorted(len(worker.keys(link)) for worker in workers) == [2, 2]
    assert workers[0].keys(link) | workers[1].keys(link) == set(plans.partition_keys(mirror))


@pytest.mark.parametrize(
    "change",
    [
        lambda mirror: MirrorTopic.objects.update(state=MirrorState.PAUSED),
        lambda mirror: MirrorTopic.objects.update(state=MirrorState.STOPPED),
        lambda mirror: MirrorTopic.objects.update(deletion_requested_at=NOW),
        lambda mirror: ClusterLink.objects.update(state=LinkState.PAUSED),
    ],
    ids=["paused", "stopped", "being deleted", "link paused"],
)
def test_partitions_that_are_no_longer_copied_are_released(
    link: ClusterLink, make_mirror: MakeMirror, change: Callable[[MirrorTopic], Any]
) -> None:
    worker, mirror = Worker(0), make_mirror(partitions=2)
    reconcile_link(link_id=link.pk)
    assert len(worker.keys(link)) == 2

    change(mirror)
    reconcile_link(link_id=link.pk)

    assert worker.keys(link) == set()
    assert placed() == {"": 2}


def test_deleted_link_is_released(link: ClusterLink, mirror: MirrorTopic) -> None:
    worker = Worker(0)
    reconcile_link(link_id=link.pk)
    worker.beat()
    MirrorTopic.objects.all().delete()
    ClusterLink.objects.all().delete()

    pool.maintain_workers()

    assert worker.keys(link) == set()


def test_partitions_of_a_silent_worker_move_to_others_at_once(
    link: ClusterLink, make_mirror: MakeMirror, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mirror(partitions=30)
    silent, live = Worker(0), Worker(1)
    reconcile_link(link_id=link.pk)
    locks.claim("copy-balance", ttl_ms=60_000)
    silence(monkeypatch, silent.worker_id)

    pool.maintain_workers()

    assert placed() == {live.worker_id: 30}
    assert ("reconcile_link", {"link_id": link.pk}) in sent


def test_loss_of_redis_data_moves_no_partition(
    link: ClusterLink, make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some workers send their next heartbeat a second later than others."""
    make_mirror(partitions=30)
    first, second = Worker(0), Worker(1)
    reconcile_link(link_id=link.pk)
    before = placed()
    redis_client().flushdb()
    first.beat()

    pool.maintain_workers()
    reconcile_link(link_id=link.pk)

    assert placed() == before == {first.worker_id: 15, second.worker_id: 15}
    assert len(second.keys(link)) == 15


def test_concurrent_placements_leave_every_partition_with_one_worker(
    make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process decides by what it read before the first wrote."""
    make_mirror(partitions=6)
    rows = list(MirrorPartition.objects.values_list("pk", flat=True))
    workers = [PoolWorker(worker_id="0000-a"), PoolWorker(worker_id="0001-b")]

    def overtaken(wanted: Any, of: Any, *, fine: bool) -> dict[str, str]:
        monkeypatch.setattr(pool, "assign", assign)
        pool.assign_partitions(workers[1:], rows)
        return assign(wanted, of, fine=fine)

    monkeypatch.setattr(pool, "assign", overtaken)
    pool.assign_partitions(workers[:1], rows)

    assert placed() == {"0001-b": 6}


def test_waiting_job_ends_as_soon_as_it_starts_once_another_was_submitted(
    mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_outcome", lambda _worker_id: "")
    alive, waiting = Worker(0), worker_id_for(1, "waiting")
    CopyWorker.objects.create(number=1, worker_id=waiting, submitted_at=NOW)

    for number in (0, 1):
        run_copy_worker(number=number)

    late = Worker(1, "waiting", known=False)
    assert (alive.ends, late.ends) == (False, True)
    assert waiting not in set(CopyWorker.objects.values_list("worker_id", flat=True))


def test_failure_of_a_copy_worker_is_shown_on_the_link_until_it_runs(link: ClusterLink, mirror: MirrorTopic) -> None:
    CopyWorker.objects.create(number=0, error="No Spark.", ended_at=NOW)
    reconcile_link(link_id=link.pk)
    link.refresh_from_db()
    assert link.engine_error == "Copy engine unavailable: No Spark."

    Worker(0)
    reconcile_link(link_id=link.pk)

    link.refresh_from_db()
    assert link.engine_error == ""


def test_error_of_a_worker_for_a_link_is_shown_on_the_link(link: ClusterLink, mirror: MirrorTopic) -> None:
    worker = Worker(0)
    reconcile_link(link_id=link.pk)

    worker.beat(error="It failed unexpectedly.")
    reconcile_link(link_id=link.pk)

    link.refresh_from_db()
    assert link.engine_error == "Copy engine unavailable: It failed unexpectedly."


def test_job_that_does_not_start_is_reported(link: ClusterLink, mirror: MirrorTopic) -> None:
    long_ago = timezone.now() - 2 * pool.START_WITHIN
    CopyWorker.objects.create(number=0, worker_id="0000-a", submitted_at=long_ago)

    with locks.lock(pool.lock_name(0)):
        pool.maintain_workers()
        reconcile_link(link_id=link.pk)

    link.refresh_from_db()
    assert "no free task slot" in link.engine_error
    assert "no free task slot" in CopyWorker.objects.get(number=0).problem


@pytest.fixture
def crowded(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The executors of live copy workers, the newest last: two workers in one executor, while another has none."""
    executors = ["a", "a"]

    def heartbeats() -> list[Heartbeat]:
        names = [*CopyWorker.objects.order_by("number").values_list("worker_id", flat=True)]
        rows = enumerate(zip(names, executors, strict=False))
        return [Heartbeat(worker_id=n, executor=e, executor_slots=2, started_at_ms=i) for i, (n, e) in rows]

    def ends_soon(_worker_id: str) -> str:
        time.sleep(1)
        return ""

    monkeypatch.setattr(pool, "WATCH_S", 0.05)
    monkeypatch.setattr(pool, "recent_heartbeats", heartbeats)
    monkeypatch.setattr(pool, "probe_spark", lambda: None)
    monkeypatch.setattr(pool, "_outcome", ends_soon)
    redis_health.note_spark(slots=4)
    for number in range(2):
        CopyWorker.objects.create(number=number, worker_id=worker_id_for(number, "old"))
    return executors


def test_worker_that_shares_its_executor_is_replaced_before_it_ends(link: ClusterLink, crowded: list[str], sent: Sent) -> None:
    run_copy_worker(number=1)
    first = CopyWorker.objects.get(number=1)
    assert first.ended_at is None
    pool.maintain_workers()

    assert submitted(sent) == [1]
    assert not {worker.worker_id: worker for worker in pool.current_pool().workers}[first.worker_id].draining


def test_worker_is_not_replaced_once_the_workers_are_spread(crowded: list[str]) -> None:
    crowded[:] = ["a", "b"]

    run_copy_worker(number=1)

    assert CopyWorker.objects.get(number=1).ended_at is not None


def test_probe_before_a_replacement_shows_that_the_other_executor_is_lost(
    crowded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "probe_spark", lambda: redis_health.note_spark(slots=None))

    run_copy_worker(number=1)

    assert CopyWorker.objects.get(number=1).ended_at is not None


def test_replacements_stop_after_some_tries_until_the_slots_change(crowded: list[str]) -> None:
    """The other executor may have no free slot for hours."""
    tried = []
    for _ in range(pool.SPREAD_TRIES + 1):
        run_copy_worker(number=1)
        tried.append(CopyWorker.objects.get(number=1).ended_at is None)
    assert tried == [True] * pool.SPREAD_TRIES + [False]

    redis_health.note_spark(slots=6)
    run_copy_worker(number=1)
    assert CopyWorker.objects.get(number=1).ended_at is None


@pytest.mark.parametrize(("slots", "size"), [(None, 1), (1, 1), (4, 2), (17, 8)])
def test_half_of_the_task_slots_copy_by_default(settings: Any, slots: int | None, size: int) -> None:
    settings.COPY_WORKERS = 0
    redis_health.note_spark(slots=slots)

    assert pool.pool_size(current=7) == size


def test_pool_grows_and_shrinks_with_the_slots_that_probes_of_spark_find(
    link: ClusterLink, make_mirror: MakeMirror, settings: Any, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third Spark worker joins, and two leave. Fewer slots count only when they have been reported for a minute."""
    settings.COPY_WORKERS = 0
    now_s = time.time()
    monkeypatch.setattr(redis_health, "time", SimpleNamespace(time=lambda: now_s))
    make_mirror(partitions=2)
    redis_health.note_spark(slots=4)
    workers = [Worker(0), Worker(1)]
    reconcile_link(link_id=link.pk)
    pool.maintain_workers()
    assert submitted(sent) == []

    now_s += 10
    redis_health.note_spark(slots=6)
    pool.maintain_workers()
    assert submitted(sent) == [2]
    workers.append(Worker(2))

    now_s += 10
    redis_health.note_spark(slots=3)
    assert pool.current_pool().size == 3
    now_s += 55
    redis_health.note_spark(slots=3)
    assert pool.current_pool().size == 1
    for _ in range(3):
        locks.release_claim("copy-balance")
        pool.maintain_workers()

    assert placed() == {workers[0].worker_id: 2}
    assert [worker.ends for worker in workers] == [False, True, True]


def test_pool_keeps_its_size_while_spark_does_not_respond(
    mirror: MirrorTopic, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.COPY_WORKERS = 0
    now_s = time.time()
    monkeypatch.setattr(redis_health, "time", SimpleNamespace(time=lambda: now_s))
    redis_health.note_spark(slots=6)
    for number in range(3):
        Worker(number)
    assert pool.current_pool().size == 3

    for _ in range(12):
        now_s += 10
        redis_health.note_spark(problem="does not respond")

    assert pool.current_pool().size == 3
    redis_client().delete("console:spark")  # as after a loss of Redis's data
    assert pool.current_pool().size == 3


def test_worker_without_heartbeats_is_abandoned_although_spark_reports_no_end(
    mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: list[str] = []
    monkeypatch.setattr(pool, "WATCH_S", 0.05)
    monkeypatch.setattr(pool, "HANGS_AFTER", timedelta(seconds=0.2))
    monkeypatch.setattr(jobs, "run_copy_worker", lambda *_, **__: time.sleep(20))
    monkeypatch.setattr(jobs, "interrupt_worker", lambda name, **_: interrupted.append(name))
    CopyWorker.objects.create(number=0)
    real = pool.recent_heartbeats

    def heartbeats() -> list[Heartbeat]:
        name = CopyWorker.objects.get(number=0).worker_id
        return [Heartbeat(worker_id=name, silent_ms=500)] if name else real()

    monkeypatch.setattr(pool, "recent_heartbeats", heartbeats)

    run_copy_worker(number=0)

    row = CopyWorker.objects.get(number=0)
    assert "no heartbeat for a minute" in row.error
    assert row.ended_at is not None
    for _ in range(1_000):
        if interrupted:
            break
        time.sleep(0.05)
    assert interrupted == [row.worker_id]
