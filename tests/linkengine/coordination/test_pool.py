"""Assignments and heartbeats of copy workers: sealed, in order, and lost without harm."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any, cast

import pytest

from linkengine.coordination.client import client_for
from linkengine.coordination.pool import (
    RedisAssignments,
    end_workers,
    forget_workers,
    key_for,
    read_workers,
    write_assignments,
)
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import CopyPlan, PartitionAssignment
from linkengine.domain.workers import AssignmentStatus, Heartbeat, WorkerSetup, worker_id_for
from tests.signing import OTHER, SECRETS, SIGNER

PASSWORD = "a password of a link"
OTHERS = (urlsafe_b64encode(bytes(32)).decode(),)  # secrets of another installation
WORKER = worker_id_for(3, "a")


@pytest.fixture
def setup(redis_url: str) -> WorkerSetup:
    worker_id = worker_id_for(3, uuid.uuid4().hex)
    return WorkerSetup(worker_id=worker_id, redis_url=redis_url, key=key_for(SECRETS[0], worker_id))


def plan(*partitions: int, link_id: str = "link", **changes: object) -> CopyPlan:
    address = ClusterAddress(bootstrap_servers="127.0.0.1:1", security_protocol="SASL_PLAINTEXT", sasl_password=PASSWORD)
    assignments = tuple(
        PartitionAssignment(
            mirror_id="m", partition=number, source_topic="t", mirror_topic="t", source_topic_id="", producer_id=1 << 62
        )
        for number in partitions
    )
    made = CopyPlan(link_id=link_id, revision=1, source=address, destination=address, assignments=assignments)
    return replace(made, **changes)  # type: ignore[arg-type]


def write(setup: WorkerSetup, plan_: CopyPlan, **more: object) -> set[str]:
    plans = {setup.worker_id: plan_}
    return write_assignments(setup.redis_url, plan_.link_id, plans, secrets=SECRETS, **more)  # type: ignore[arg-type]


def raw(setup: WorkerSetup) -> dict[str, str]:
    return cast("dict[str, str]", client_for(setup.redis_url).hgetall(_name(setup)))


def _name(setup: WorkerSetup) -> str:
    return f"copy-assignment:{{{setup.worker_id}}}"


def _forge(setup: WorkerSetup, field: str, token: str) -> None:
    """Write a field as an attacker would, with a new digest and stamp, so that the worker reads it."""
    redis = client_for(setup.redis_url)
    redis.hset(_name(setup), field, token)
    redis.hset(f"copy-digest:{{{setup.worker_id}}}", field, uuid.uuid4().hex)
    redis.hset(f"copy-digest:{{{setup.worker_id}}}", "stamp", uuid.uuid4().hex)


def test_a_worker_reads_its_assignments(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    assert assignments.read().plans == {}

    assert write(setup, plan(0, 1)) == {setup.worker_id}
    first = assignments.read()
    write(setup, plan(1))
    write(setup, plan(7, link_id="other"))
    second = assignments.read()

    assert first.plans == {"link": plan(0, 1)}
    assert second.plans == {"link": plan(1), "other": plan(7, link_id="other")}
    assert second.numbers["link"] > first.numbers["link"]
    assert not second.ends


def test_an_unchanged_assignment_is_not_written_and_read_returns_the_same_object(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    write(setup, plan(0))
    assigned, before = assignments.read(), raw(setup)

    grown = replace(plan(0), assignments=(replace(plan(0).assignments[0], source_seen=(3, 40)),))

    assert write(setup, grown) == set()
    assert raw(setup) == before
    assert assignments.read() is assigned


def test_redis_contains_no_secret_in_plain_text(setup: WorkerSetup) -> None:
    write(setup, plan(0))

    assert PASSWORD not in str(raw(setup))
    assert setup.key not in repr(setup)


def test_an_assignment_sealed_for_another_worker_link_or_installation_is_ignored(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    write(setup, plan(0))
    assigned = assignments.read()
    other = replace(setup, worker_id=worker_id_for(3, uuid.uuid4().hex))
    write(other, plan(5))
    write_assignments(setup.redis_url, "link", {setup.worker_id: plan(6)}, secrets=OTHERS)

    for token in ("nonsense", raw(other)["link"], raw(setup)["link"]):
        _forge(setup, "link", token)
        assert assignments.read().plans == assigned.plans
    write(setup, plan(8, link_id="other"))
    _forge(setup, "link", raw(setup)["other"])

    assert assignments.read().plans["link"] == plan(0)


def test_a_replayed_assignment_is_refused(setup: WorkerSetup) -> None:
    """Otherwise an attacker with access to Redis could make a worker copy partitions that it had to release."""
    assignments = RedisAssignments(setup)
    write(setup, plan(0))
    old = raw(setup)["link"]
    write(setup, plan())
    assert assignments.read().plans == {"link": plan()}

    _forge(setup, "link", old)

    assert assignments.read().plans == {"link": plan()}


def test_a_worker_keeps_its_assignments_after_data_loss(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    write(setup, plan(0))
    assigned = assignments.read()

    forget_workers(setup.redis_url, [setup.worker_id])

    assert assignments.read() is assigned


def test_a_worker_reads_new_assignments_after_data_loss_and_a_clock_set_back(
    setup: WorkerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignments = RedisAssignments(setup)
    write(setup, plan(0))
    applied = dict(assignments.read().numbers)
    forget_workers(setup.redis_url, [setup.worker_id])
    monkeypatch.setattr("linkengine.coordination.pool.time.time_ns", lambda: 1)

    write(setup, plan(1), applied={setup.worker_id: applied["link"]})

    assert assignments.read().plans == {"link": plan(1)}


@pytest.mark.parametrize("order", ["copy", "end"])
def test_an_assignment_that_was_lost_while_it_was_read_is_read_when_it_is_written_again(
    setup: WorkerSetup, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    def give() -> None:
        if order == "copy":
            write(setup, plan(0))
        else:
            end_workers(setup.redis_url, [setup.worker_id], secrets=SECRETS)

    def lose(*words: Any) -> Any:
        forget_workers(setup.redis_url, [setup.worker_id])
        return hmget(*words)

    assignments, redis = RedisAssignments(setup), client_for(setup.redis_url)
    hmget = redis.hmget
    give()
    with monkeypatch.context() as patch:
        patch.setattr(redis, "hmget", lose)  # is requested after the digests
        lost = assignments.read()
    give()

    found = assignments.read()

    assert (lost.plans, lost.ends) == ({}, False)
    assert (found.plans, found.ends) == (({"link": plan(0)}, False) if order == "copy" else ({}, True))


def test_two_writers_of_assignments_do_not_block_each_other(setup: WorkerSetup) -> None:
    """The last assignment counts."""
    assignments = RedisAssignments(setup)
    for latest in (plan(0), plan(0, 1), plan(0), plan(0, 1)):
        write(setup, latest)
        assert assignments.read().plans == {"link": latest}


def test_a_worker_can_be_ended(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    write(setup, plan(0))

    end_workers(setup.redis_url, [setup.worker_id], secrets=SECRETS)

    assert assignments.read().ends


def test_a_plan_of_a_later_version_is_refused_with_a_message_and_the_previous_plan_stays(
    setup: WorkerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignments = RedisAssignments(setup)
    write(setup, plan(0))
    assignments.read()
    monkeypatch.setattr("linkengine.domain.plans.PLAN_VERSION", 1)

    write(setup, plan(1))
    assigned = assignments.read()

    assert assigned.plans == {"link": plan(0)}
    assert "version" in assigned.refused["link"]


def test_a_heartbeat_is_returned_with_its_age(setup: WorkerSetup) -> None:
    beat = Heartbeat(
        worker_id=setup.worker_id,
        host="h",
        pid=7,
        started_at_ms=5,
        partitions=2,
        bytes_per_s=1.5,
        links={"link": AssignmentStatus(applied=9, partitions=2, error="no")},
    )

    RedisAssignments(setup).beat(beat)
    (found,) = [each for each in read_workers(setup.redis_url, secrets=SECRETS) if each.worker_id == setup.worker_id]

    assert replace(found, silent_ms=0) == beat
    assert found.silent_ms < 1_000
    assert found.alive


def test_forged_heartbeats_are_ignored(setup: WorkerSetup) -> None:
    RedisAssignments(setup).beat(Heartbeat(worker_id=setup.worker_id))
    redis = client_for(setup.redis_url)
    forged = cast(str, redis.hget("copy-workers", setup.worker_id))
    redis.hset("copy-workers", worker_id_for(9, "forged"), forged)
    redis.hset("copy-workers", "no worker", "nonsense")

    names = [beat.worker_id for beat in read_workers(setup.redis_url, secrets=SECRETS)]

    assert setup.worker_id in names
    assert not {worker_id_for(9, "forged"), "no worker"} & set(names)
    assert read_workers(setup.redis_url, secrets=OTHERS) == []


def test_a_worker_stays_connected_while_the_secret_is_rotated(setup: WorkerSetup) -> None:
    assignments, both = RedisAssignments(setup), OTHERS + SECRETS
    assignments.beat(Heartbeat(worker_id=setup.worker_id))

    write_assignments(setup.redis_url, "link", {setup.worker_id: plan(1)}, secrets=both)
    assert assignments.read().plans == {"link": plan(1)}
    assert setup.worker_id in [beat.worker_id for beat in read_workers(setup.redis_url, secrets=both)]
    end_workers(setup.redis_url, [setup.worker_id], secrets=both)

    assert assignments.read().ends


def test_a_worker_signs_with_the_keys_of_its_latest_assignment(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    assert assignments.signer_of("link").keys == ()

    for signer, partitions in ((SIGNER, (0,)), (OTHER, ())):
        write(setup, plan(*partitions, signing_keys=signer.texts()))
        assignments.read()
        assert assignments.signer_of("link") == signer


def test_another_request_id_does_not_change_an_assignment(setup: WorkerSetup) -> None:
    write(setup, plan(0, request_id="one"))

    assert write(setup, plan(0, request_id="another")) == set()
