"""The documented Redis user may run all commands that the product uses, and no others."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from celery import Celery

from console.queue import dispatch, scheduler, transport
from console.redis import heartbeats as redis_health
from console.redis import locks, rate_limit
from devcluster.processes import Process
from devcluster.redis import RedisServer
from linkengine import jobs
from linkengine.coordination.client import RedisAllowances
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.pool import RedisAssignments, forget_workers
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import CopyPlan, PartitionPhase, PartitionProgress
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.workers import Heartbeat
from tests.signing import SECRETS, SIGNER

ROOT = Path(__file__).resolve().parents[3]
LINK, MIRROR = "link", "7"


def documented() -> list[str]:
    """Return the rules of the documented user, as for ACL SETUSER."""
    (block,) = re.findall(r"```redis-acl\n(.*?)```", (ROOT / "docs/operations/configure.md").read_text(), re.DOTALL)
    (line,) = [line for line in block.splitlines() if line.startswith("user clusterlink ")]
    return str(line).removeprefix("user clusterlink ").split()


@pytest.fixture
def address(tmp_path: Path, settings: Any) -> Iterator[str]:
    """The address of a Redis with the documented user, also in the settings."""
    with RedisServer(directory=tmp_path / "redis") as server:
        with redis.Redis.from_url(server.url) as admin:
            admin.execute_command("ACL", "SETUSER", "clusterlink", *documented())
        place = urlsplit(server.url)
        settings.REDIS_URL = f"redis://clusterlink:a-long-password@{place.hostname}:{place.port}/0"
        yield settings.REDIS_URL


def _assign_to_a_worker(address: str) -> None:
    """Write an assignment for a copy worker, send its heartbeat, and forget it."""
    setup = jobs.setup_worker("0000-w", redis_url=address, secrets=SECRETS, lease_ttl_ms=4_000)
    no_cluster = ClusterAddress(bootstrap_servers="")
    plan = CopyPlan(link_id=LINK, revision=1, source=no_cluster, destination=no_cluster, signing_keys=SIGNER.texts())
    assignments = RedisAssignments(setup)
    assignments.beat(Heartbeat(worker_id="0000-w"))
    assert [beat.worker_id for beat in jobs.read_workers(address, secrets=SECRETS)] == ["0000-w"]
    assert jobs.write_assignments(address, LINK, {"0000-w": plan}, secrets=SECRETS, applied={"0000-w": 1}) == {"0000-w"}
    assert assignments.read().plans == {LINK: plan}
    jobs.end_workers(address, ["0000-w"], secrets=SECRETS)
    forget_workers(address, ["0000-w"])


def test_copy_workers_and_web_processes_may_run_their_commands(address: str) -> None:
    lease = RedisLease(address, ttl_ms=4_000)
    (grant,) = lease.acquire_all([f"{MIRROR}/0"], "owner")
    assert lease.renew([grant]) == {grant.key} == lease.announce_markers([grant])
    lease.raise_generation(grant.key, 7)
    lease.release(grant)
    _assign_to_a_worker(address)
    progress = RedisProgress(address, lambda _: SIGNER)
    report = PartitionProgress(key=grant.key, copy_run_id="s", phase=PartitionPhase.COPYING, observed_at_ms=1)
    progress.report(LINK, [report])
    progress.keep(LINK, report)
    progress.report_loss(LINK, (grant.key, OffsetRange(0, 5)))
    kept = jobs.read_kept(address, LINK, SIGNER)
    assert len(kept) == 1
    jobs.forget_kept(address, LINK, kept)
    assert len(jobs.read_progress(address, LINK, SIGNER)) == len(jobs.read_losses(address, LINK, SIGNER)) == 1
    RedisAllowances(address).spend(LINK, 1_000, bytes_per_s=1_000_000)
    jobs.clear_mirror(address, LINK, mirror_id=MIRROR, keys=[grant.key])
    jobs.clear_link(address, LINK, keys=[grant.key])

    redis_health.note_worker()
    redis_health.note_clock("worker")
    scheduler.note_sending()
    redis_health.note_step_success("links")
    redis_health.note_step_failure("links", ValueError("x"))
    redis_health.note_mirrors(1, {"orders": ValueError("x")})
    assert redis_health.read_steps(["links"])["links"].failures == 1
    assert locks.claim("one", ttl_ms=1_000)
    assert rate_limit.take_token("one", per_s=1, burst=1) == 0
    assert not locks.is_abandoned("one")
    locks.request_recheck("one")
    with locks.lock("one") as acquired:
        assert acquired
    dispatch.send_reply("console:reply:1", {"result": 1})
    assert dispatch.wait_for_reply("console:reply:1", timeout_s=5) == {"result": 1}
    transport.count_refused("task")
    assert transport.refused_counts() == {"task": 1}


@pytest.mark.timeout(120)
def test_worker_may_take_tasks_and_reply_to_remote_control(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transactional_db: None
) -> None:
    env = {"CLUSTERLINK_REDIS_URL": address, "CLUSTERLINK_SPARK_URL": "sc://127.0.0.1:1", "CLUSTERLINK_WORKER_THREADS": "4"}
    env["CLUSTERLINK_DATABASE_URL"] = f"sqlite:///{tmp_path}/none.sqlite3"
    command = [sys.executable, "-m", "celery", "-A", "console.celery", "worker", "-n", "restricted@%h", "--loglevel=INFO"]
    command += ["--without-gossip", "--without-mingle"]  # as the documentation says
    worker = Process(command, name="worker", log=tmp_path / "worker.log", env=env, cwd=ROOT)
    try:
        with Celery("own", set_as_current=False) as app:
            app.config_from_object("django.conf:settings", namespace="CELERY")
            app.conf.update(broker_url=address)
            monkeypatch.setattr(dispatch, "app", app)
            worker.wait_until(lambda: bool(app.control.ping(timeout=2)), timeout_s=90)
            with pytest.raises(LinkEngineError):  # the table does not exist, but there is a reply
                dispatch.call("query_cluster", timeout_s=60, cluster_pk=1, query="topics", arguments={})
    finally:
        worker.stop()
    assert "permission" not in worker.log.read_text().lower()


@pytest.mark.parametrize(
    "command", [["CONFIG", "GET", "*"], ["FLUSHALL"], ["KEYS", "*"], ["SET", "another:product", "1"], ["ACL", "LIST"]]
)
def test_other_commands_are_denied(address: str, command: list[str]) -> None:
    with redis.Redis.from_url(address) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command)
