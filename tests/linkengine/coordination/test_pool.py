"""What copy workers are told and what they tell: sealed, in order, and lost without harm."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import cast

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
from linkengine.domain.workers import Heartbeat, LinkShare, WorkerSetup, worker_id_for
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
            mirror_id="m", partition=one, source_topic="t", mirror_topic="t", source_topic_id="", producer_id=1 << 62
        )
        for one in partitions
    )
    made = CopyPlan(link_id=link_id, revision=1, source=address, destination=address, assignments=assignments)
    return cast(CopyPlan, replace(made, **changes))  # type: ignore[arg-type]


def tell(setup: WorkerSetup, one: CopyPlan, **more: object) -> set[str]:
    return write_assignments(setup.redis_url, one.link_id, {setup.worker_id: one}, secrets=SECRETS, **more)  # type: ignore[arg-type]


def raw(setup: WorkerSetup) -> dict[str, str]:
    return cast("dict[str, str]", client_for(setup.redis_url).hgetall(_name(setup)))


def _name(setup: WorkerSetup) -> str:
    return f"copy-assignment:{{{setup.worker_id}}}"


def _touch(setup: WorkerSetup, field: str, token: str) -> None:
    """Write as an attacker would, and have the worker look."""
    redis = client_for(setup.redis_url)
    redis.hset(_name(setup), field, token)
    redis.hset(f"copy-digest:{{{setup.worker_id}}}", field, uuid.uuid4().hex)
    redis.hset(f"copy-digest:{{{setup.worker_id}}}", "stamp", uuid.uuid4().hex)


def test_a_worker_follows_what_it_is_told(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    assert assignments.read().plans == {}

    assert tell(setup, plan(0, 1)) == {setup.worker_id}
    first = assignments.read()
    tell(setup, plan(1))
    tell(setup, plan(7, link_id="other"))
    second = assignments.read()

    assert first.plans == {"link": plan(0, 1)}
    assert second.plans == {"link": plan(1), "other": plan(7, link_id="other")}
    assert second.numbers["link"] > first.numbers["link"]
    assert not second.ends


def test_without_news_nothing_is_written_and_the_same_is_answered(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    tell(setup, plan(0))
    told, before = assignments.read(), raw(setup)

    grown = replace(plan(0), assignments=(replace(plan(0).assignments[0], source_seen=(3, 40)),))

    assert tell(setup, grown) == set()
    assert raw(setup) == before
    assert assignments.read() is told


def test_no_secret_is_to_be_seen_in_redis(setup: WorkerSetup) -> None:
    tell(setup, plan(0))

    assert PASSWORD not in str(raw(setup))
    assert setup.key not in repr(setup)


def test_what_was_not_said_by_us_is_not_followed(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    tell(setup, plan(0))
    told = assignments.read()
    stranger = replace(setup, worker_id=worker_id_for(3, uuid.uuid4().hex))
    tell(stranger, plan(5))
    write_assignments(setup.redis_url, "link", {setup.worker_id: plan(6)}, secrets=OTHERS)

    for token in ("nonsense", raw(stranger)["link"], raw(setup)["link"]):
        _touch(setup, "link", token)
        assert assignments.read().plans == told.plans
    tell(setup, plan(8, link_id="other"))
    _touch(setup, "link", raw(setup)["other"])

    assert assignments.read().plans["link"] == plan(0)


def test_an_assignment_that_was_overtaken_is_refused(setup: WorkerSetup) -> None:
    """Else who can write to Redis could have a worker copy what it was told to let go of."""
    assignments = RedisAssignments(setup)
    tell(setup, plan(0))
    old = raw(setup)["link"]
    tell(setup, plan())
    assert assignments.read().plans == {"link": plan()}

    _touch(setup, "link", old)

    assert assignments.read().plans == {"link": plan()}


def test_a_worker_that_hears_nothing_goes_on_with_what_it_was_told(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    tell(setup, plan(0))
    told = assignments.read()

    forget_workers(setup.redis_url, [setup.worker_id])

    assert assignments.read() is told


def test_it_hears_again_after_redis_has_lost_everything_and_the_clock_was_set_back(
    setup: WorkerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignments = RedisAssignments(setup)
    tell(setup, plan(0))
    applied = dict(assignments.read().numbers)
    forget_workers(setup.redis_url, [setup.worker_id])
    monkeypatch.setattr("linkengine.coordination.pool.time.time_ns", lambda: 1)

    tell(setup, plan(1), applied={setup.worker_id: applied["link"]})

    assert assignments.read().plans == {"link": plan(1)}


def test_two_who_tell_do_not_hinder_each_other(setup: WorkerSetup) -> None:
    """Each writes what it knows; whoever was last is followed."""
    assignments = RedisAssignments(setup)
    for one in (plan(0), plan(0, 1), plan(0), plan(0, 1)):
        tell(setup, one)
        assert assignments.read().plans == {"link": one}


def test_a_worker_is_told_to_end(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    tell(setup, plan(0))

    end_workers(setup.redis_url, [setup.worker_id], secrets=SECRETS)

    assert assignments.read().ends


def test_a_plan_of_a_later_version_is_refused_in_words_and_the_old_one_goes_on(
    setup: WorkerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignments = RedisAssignments(setup)
    tell(setup, plan(0))
    assignments.read()
    monkeypatch.setattr("linkengine.domain.plantexts.PLAN_VERSION", 1)

    tell(setup, plan(1))
    told = assignments.read()

    assert told.plans == {"link": plan(0)}
    assert "version" in told.refused["link"]


def test_a_heartbeat_is_told_with_its_age(setup: WorkerSetup) -> None:
    beat = Heartbeat(
        worker_id=setup.worker_id,
        host="h",
        pid=7,
        started_at_ms=5,
        partitions=2,
        bytes_per_s=1.5,
        links={"link": LinkShare(applied=9, partitions=2, error="no")},
    )

    RedisAssignments(setup).beat(beat)
    (found,) = [one for one in read_workers(setup.redis_url, secrets=SECRETS) if one.worker_id == setup.worker_id]

    assert replace(found, silent_ms=0) == beat
    assert found.silent_ms < 1_000
    assert found.alive


def test_heartbeats_of_nobody_are_not_heard(setup: WorkerSetup) -> None:
    RedisAssignments(setup).beat(Heartbeat(worker_id=setup.worker_id))
    redis = client_for(setup.redis_url)
    forged = cast(str, redis.hget("copy-workers", setup.worker_id))
    redis.hset("copy-workers", worker_id_for(9, "forged"), forged)
    redis.hset("copy-workers", "no worker", "nonsense")

    names = [one.worker_id for one in read_workers(setup.redis_url, secrets=SECRETS)]

    assert setup.worker_id in names
    assert not {worker_id_for(9, "forged"), "no worker"} & set(names)
    assert read_workers(setup.redis_url, secrets=OTHERS) == []


def test_a_worker_goes_on_hearing_and_being_heard_while_the_secret_is_replaced(setup: WorkerSetup) -> None:
    assignments, both = RedisAssignments(setup), OTHERS + SECRETS
    assignments.beat(Heartbeat(worker_id=setup.worker_id))

    write_assignments(setup.redis_url, "link", {setup.worker_id: plan(1)}, secrets=both)
    assert assignments.read().plans == {"link": plan(1)}
    assert setup.worker_id in [one.worker_id for one in read_workers(setup.redis_url, secrets=both)]
    end_workers(setup.redis_url, [setup.worker_id], secrets=both)

    assert assignments.read().ends


def test_a_worker_signs_with_the_keys_that_it_was_told_last(setup: WorkerSetup) -> None:
    assignments = RedisAssignments(setup)
    assert assignments.signer_of("link").keys == ()

    for signer, partitions in ((SIGNER, (0,)), (OTHER, ())):
        tell(setup, plan(*partitions, signing_keys=signer.texts()))
        assignments.read()
        assert assignments.signer_of("link") == signer


def test_another_request_is_no_news(setup: WorkerSetup) -> None:
    tell(setup, plan(0, request_id="one"))

    assert tell(setup, plan(0, request_id="another")) == set()
