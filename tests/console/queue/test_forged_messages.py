"""Write access to Redis cannot make a real worker do anything: forged, altered, copied and old messages, and forged replies."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
import redis
import structlog
from celery import Celery
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourceType,
)
from confluent_kafka.admin import ResourcePatternType as Pattern
from django.db import connection

from console import audit
from console.actors import SYSTEM
from console.config import signing_keys
from console.errors import UnavailableError
from console.models import AuditEvent, Cluster
from console.queue import dispatch, transport
from console.queue.transport import LONGEST_S
from console.redis import redis_client
from devcluster.kafka import KafkaCluster
from devcluster.processes import Process
from linkengine.domain.errors import ErrorCode, LinkEngineError

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 60.0
EVERYTHING = {
    "resource_type": "TOPIC",
    "resource_name": "*",
    "pattern_type": "LITERAL",
    "principal": "User:mallory",
    "host": "*",
    "operation": "ALL",
    "permission": "ALLOW",
}


@pytest.fixture
def queue(settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """The work queue of this test, as the console's processes use it."""
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/11"
    redis_client().flushdb()
    with Celery("own", set_as_current=False) as app:
        app.config_from_object("django.conf:settings", namespace="CELERY")
        app.conf.update(broker_url=settings.REDIS_URL)
        monkeypatch.setattr(dispatch, "app", app)
        yield app
    redis_client().flushdb()


@pytest.fixture
def attacker(queue: Celery, settings: Any) -> redis.Redis:
    """A client with write access to Redis."""
    return redis.Redis.from_url(settings.REDIS_URL, decode_responses=True)


@pytest.fixture
def worker(transactional_db: None, queue: Celery, settings: Any, tmp_path: Path) -> Iterator[Process]:
    env = {
        "CLUSTERLINK_DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "CLUSTERLINK_REDIS_URL": settings.REDIS_URL,
        "CLUSTERLINK_SPARK_URL": "sc://127.0.0.1:1",
        "CLUSTERLINK_WORKER_THREADS": "4",
        "CLUSTERLINK_LOG_JSON": "true",
    }
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tests.console.queue.attacked_worker",
        "worker",
        "-n",
        f"attacked-{uuid4().hex}@%h",
    ]
    process = Process(command, name="worker", log=tmp_path / "worker.log", env=env, cwd=ROOT)
    yield process
    process.kill()


@pytest.fixture
def admin(destination_cluster: KafkaCluster) -> AdminClient:
    return AdminClient(destination_cluster.client("admin"))


@pytest.fixture
def topic(admin: AdminClient, topic_name: str) -> str:
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(30)
    return topic_name


@pytest.fixture
def cluster(worker: Process, destination: Cluster, destination_cluster: KafkaCluster) -> Cluster:
    """The registered cluster, once the worker replies."""
    destination.cluster_id = destination_cluster.cluster_id
    destination.properties = destination_cluster.client_properties("link")
    destination.save()
    wait(worker, lambda: request(destination, "topics", timeout_s=2) is not None)
    return destination


def wait(worker: Process, check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline, worker.log_tail()
        time.sleep(0.1)


def request(cluster: Cluster, query: str, *, timeout_s: float = TIMEOUT_S, **arguments: Any) -> Any:
    try:
        return dispatch.call("query_cluster", timeout_s=timeout_s, cluster_pk=cluster.pk, query=query, arguments=arguments)
    except UnavailableError:
        return None


def deletion(cluster: Cluster, topic: str) -> dict[str, Any]:
    """Return what a task needs to delete the topic."""
    entry = audit.entry(by=SYSTEM, action="DeleteTopic", resource=topic, detail={})
    about = {"query": "delete_topic", "arguments": {"topic": topic}, "entry": entry, "change_id": uuid4().hex}
    return {"cluster_pk": cluster.pk, "reply_to": f"console:reply:{uuid4().hex}", **about}


def unsigned(task: str, kwargs: dict[str, Any], *, queue: str = "control", **headers: Any) -> dict[str, Any]:
    """Return a message in Celery's format, without a signature."""
    number = uuid4().hex
    body = json.dumps([[], kwargs, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": task, "id": number, "root_id": number, "retries": 0, **headers},
        "properties": {
            "correlation_id": number,
            "reply_to": uuid4().hex,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": uuid4().hex,
        },
    }


def signed(queue: Celery, attacker: redis.Redis, task: str, kwargs: dict[str, Any], *, to: str = "nobody") -> dict[str, Any]:
    """Return a message that was taken from a queue without a worker."""
    queue.send_task(task, kwargs=kwargs, queue=to, expires=600)
    found: dict[str, Any] = json.loads(str(attacker.lpop(to)))
    return found


def push(attacker: redis.Redis, *messages: Any, queue: str = "control") -> None:
    attacker.lpush(queue, *(message if isinstance(message, str) else json.dumps(message) for message in messages))


def refused(kind: str = "task") -> int:
    return transport.refused_counts().get(kind, 0)


def log_of(worker: Process, event: str) -> list[dict[str, Any]]:
    lines = (line for line in worker.log.read_text().splitlines() if line.startswith("{"))
    return [found for line in lines if (found := json.loads(line)).get("event") == event]


def may_all(admin: AdminClient) -> list[AclBinding]:
    anything: Any = None  # which the client's type hints leave out
    everyone = AclBindingFilter(
        ResourceType.ANY, anything, Pattern.ANY, "User:mallory", anything, AclOperation.ANY, AclPermissionType.ANY
    )
    found: list[AclBinding] = admin.describe_acls(everyone).result(30)
    return found


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_forged_messages_change_no_cluster_and_the_worker_continues(
    cluster: Cluster, topic: str, admin: AdminClient, queue: Celery, attacker: redis.Redis, worker: Process
) -> None:
    before = refused()
    harmless = signed(queue, attacker, "query_cluster", {"cluster_pk": cluster.pk, "query": "topics", "arguments": {}})
    wanted = deletion(cluster, topic)
    altered = {**harmless, "body": unsigned("change_cluster", wanted)["body"], "headers": {**harmless["headers"]}}
    renamed = {**altered, "headers": {**altered["headers"], "task": "change_cluster"}}
    prolonged = signed(queue, attacker, "change_cluster", deletion(cluster, topic))
    prolonged["headers"]["expires"] = "2099-01-01T00:00:00+00:00"
    acls = {**deletion(cluster, topic), "query": "create_acls", "arguments": {"rules": [EVERYTHING]}}
    forged = [
        unsigned("change_cluster", wanted),  # the plain attack
        unsigned("change_cluster", acls),
        unsigned("query_cluster", {key: wanted[key] for key in ("cluster_pk", "query", "arguments", "reply_to")}),
        unsigned("change_cluster", wanted, signature={"to": "queue:control", "at": time.time(), "mac": "0" * 64}),
        unsigned("change_cluster", wanted, signature="yes"),
        {**unsigned("change_cluster", wanted), "content-type": "application/x-python-serialize"},
        {**unsigned("change_cluster", wanted, compression="application/x-gzip"), "body": "H4sI"},
        altered,
        renamed,
        prolonged,
        signed(queue, attacker, "change_cluster", deletion(cluster, topic)),  # valid, but copied into another queue
        "no JSON",
        "7",
        "[]",
        "null",
        '{"headers": 7}',
        "[" * 50_000,
        '{"__type__": "datetime", "__value__": 7}',
    ]

    push(attacker, *forged)
    wait(worker, lambda: refused() >= before + len(forged))
    attacker.hset("unacked", mapping={"one": "no JSON", "two": "[]", "three": '[{"headers": {}}, "", "control"]'})
    attacker.zadd("unacked_index", {"one": 1, "two": 1, "three": 1})
    wait(worker, lambda: not attacker.hlen("unacked"))

    assert request(cluster, "topic", topic=topic)["name"] == topic
    assert topic in admin.list_topics(timeout=30).topics
    assert may_all(admin) == []
    assert not AuditEvent.objects.exclude(change_id=None).exists()
    assert worker.running()
    events = log_of(worker, "queue.message_refused")
    assert {"is not signed", "has a signature that is not valid", "was sent to queue:nobody"} <= {
        event["why"] for event in events
    }
    assert attacker.llen("control") == 0  # nothing is redelivered


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_change_is_audited_by_its_task_and_made_once(
    cluster: Cluster, topic: str, admin: AdminClient, queue: Celery, attacker: redis.Redis, worker: Process
) -> None:
    wanted = deletion(cluster, topic)
    message = signed(queue, attacker, "change_cluster", wanted, to="control-kept")
    to_control = transport.sign(
        {**message, "headers": {key: value for key, value in message["headers"].items() if key != "signature"}},
        to="queue:control",
        at=datetime.now(tz=UTC),
    )

    push(attacker, to_control)
    wait(worker, lambda: topic not in admin.list_topics(timeout=30).topics)
    wait(worker, lambda: AuditEvent.objects.filter(result="SUCCESS", change_id=wanted["change_id"]).exists())
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    push(attacker, to_control, to_control)  # copies of a valid message
    wait(worker, lambda: refused("change") == 2)

    assert topic in admin.list_topics(timeout=30).topics
    assert AuditEvent.objects.filter(action="DeleteTopic").count() == 1


def test_forged_reply_is_dropped_and_the_real_one_returned(queue: Celery, attacker: redis.Redis) -> None:
    name, other, before = "console:reply:1", "console:reply:2", refused("reply")
    dispatch.send_reply(other, {"result": "of another query"})
    copied = str(attacker.lpop(other))
    forged = ['{"result": "forged"}', '{"reply": "{}", "signature": 7}', "no JSON", "[]", copied]
    attacker.rpush(name, *forged)
    Timer(0.3, dispatch.send_reply, (name, {"result": "true"})).start()

    assert dispatch.wait_for_reply(name, timeout_s=10) == {"result": "true"}
    assert refused("reply") == before + len(forged)

    attacker.rpush(name, *forged)
    assert dispatch.wait_for_reply(name, timeout_s=0.5) is None


def test_old_message_without_an_expiry_is_refused(queue: Celery) -> None:
    channel = queue.connection_for_write().default_channel
    assert isinstance(channel, transport.Channel)
    ages = {"young": LONGEST_S - 60, "old": LONGEST_S + 60}
    accepted = {
        name: channel.accepts(
            transport.sign(
                unsigned("reconcile", {}), to="queue:control", at=datetime.fromtimestamp(time.time() - age_s, tz=UTC)
            ),
            "control",
            destinations={"queue:control"},
        )
        for name, age_s in ages.items()
    }

    assert accepted == {"young": True, "old": False}


def test_message_with_too_late_an_expiry_is_refused(queue: Celery, settings: Any) -> None:
    late = unsigned("reconcile", {}, expires=datetime.fromtimestamp(time.time() + LONGEST_S + 60, tz=UTC).isoformat())

    with pytest.raises(transport.RefusedError, match="expires too late"):
        transport.check_signature(
            transport.sign(late, to="queue:control", at=datetime.now(tz=UTC)), destinations={"queue:control"}
        )
    # a redelivered message is not refused
    longest = max(entry["options"]["expires"] for entry in settings.CELERY_BEAT_SCHEDULE.values())
    assert longest + settings.CELERY_BROKER_TRANSPORT_OPTIONS["visibility_timeout"] < LONGEST_S


def test_messages_are_accepted_during_a_rotation_of_the_credentials_key(queue: Celery, settings: Any) -> None:
    old, new = settings.CREDENTIALS_KEYS[0], base64.urlsafe_b64encode(b"n" * 32).decode()
    message = transport.sign(unsigned("reconcile", {}), to="queue:control", at=datetime.now(tz=UTC))

    for known, accepted in (([old, new], True), ([new, old], True), ([new], False)):
        settings.CREDENTIALS_KEYS = known
        if accepted:
            transport.check_signature(message, destinations={"queue:control"})
        else:
            with pytest.raises(transport.RefusedError):
                transport.check_signature(message, destinations={"queue:control"})


def test_keys_of_different_purposes_differ(settings: Any) -> None:
    signers = [
        signing_keys.queue_signer(),
        signing_keys.reply_signer(),
        signing_keys.link_signer("a"),
        signing_keys.link_signer("b"),
    ]

    assert len({signer.keys for signer in signers}) == len(signers)
    assert not any(settings.CREDENTIALS_KEYS[0] in repr(signer) for signer in signers)


def test_remote_control_commands_are_signed_too(queue: Celery) -> None:
    """Celery's own commands; an unsigned command is refused like any other message."""
    channel = queue.connection_for_write().default_channel
    assert isinstance(channel, transport.Channel)
    command = unsigned("shutdown", {})

    assert not channel.accepts(command, "worker.celery.pidbox", destinations={"fanout:celery.pidbox"})
    from_console = transport.sign(command, to="fanout:celery.pidbox", at=datetime.now(tz=UTC))
    assert channel.accepts(from_console, "worker.celery.pidbox", destinations={"fanout:celery.pidbox"})


def test_error_of_a_change_is_in_its_audit_row(destination: Cluster) -> None:
    entry = audit.entry(by=SYSTEM, action="GrowTopic", resource="topic", detail={"partitions": 3})
    error = LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "It has more.")

    def change() -> None:
        with audit.carried_out(entry, change_id="1"):
            assert AuditEvent.objects.get().result == "UNKNOWN"  # before anything happens
            raise error

    with pytest.raises(LinkEngineError):
        change()
    row = AuditEvent.objects.get()
    assert (row.result, row.detail["partitions"], row.detail["reason"]) == ("FAILURE", 3, "It has more.")
    with pytest.raises(audit.RepeatedChangeError):
        change()


@pytest.mark.timeout(180)
def test_log_lines_of_a_task_have_the_id_of_its_request(worker: Process, destination: Cluster, queue: Celery) -> None:
    with structlog.contextvars.bound_contextvars(request_id="request-of-a-page"):
        wait(worker, lambda: fails(destination))

    (line, *_) = log_of(worker, "task.failed")
    assert (line["request_id"], line["task"], line["task_id"] != "") == ("request-of-a-page", "query_cluster", True)


def fails(cluster: Cluster) -> bool:
    """Return whether the worker has hit a bug: a query that does not exist."""
    try:
        return request(cluster, "no such query", timeout_s=2) is not None
    except LinkEngineError as error:
        return error.code == "INTERNAL_ERROR"
