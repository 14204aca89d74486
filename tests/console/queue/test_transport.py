"""A worker survives an outage of its queue, and messages expire by Redis's clock."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import time_machine
from celery import Celery
from celery.worker.request import Request
from kombu import Connection, Queue
from kombu.common import ignore_errors

from console.celery import app
from console.queue.transport import Message, Transport
from devcluster.redis import RedisServer


def test_closing_a_connection_after_redis_was_killed_raises_nothing(tmp_path: Path) -> None:
    server = RedisServer(directory=tmp_path).start()
    try:
        connection = Connection(server.url)
        assert isinstance(connection.transport, Transport)
        queue = Queue("work")(connection.default_channel)
        queue.declare()
        connection.Producer().publish("a task", routing_key="work")
        message = queue.get()
        assert message is not None
        assert message.channel is not None
        server.kill()

        connection._do_close_transport()  # as Celery does to clean up
        ignore_errors(connection, message.channel.close)
        message.ack_log_error(logging.getLogger(__name__), connection.connection_errors)
    finally:
        server.stop()


def test_console_uses_this_transport() -> None:
    assert isinstance(app.connection_for_write().transport, Transport)


def test_worker_reconnects_to_its_queue_without_a_limit() -> None:
    assert app.conf.broker_connection_max_retries is None


@pytest.mark.parametrize("ahead_s", [-3600, -5, 0, 5, 3600])
def test_message_expires_by_redis_clock_whatever_the_other_clocks_say(ahead_s: int, queue: Celery) -> None:
    started = time.time()
    with time_machine.travel(started - 30):  # beat's clock
        queue.send_task("nothing", expires=20)

    with time_machine.travel(started + ahead_s):
        assert not is_expired(queue)


@pytest.mark.parametrize("ahead_s", [-3600, 0, 3600])
def test_message_that_waited_too_long_has_expired(ahead_s: int, queue: Celery) -> None:
    queue.send_task("nothing", expires=1)
    time.sleep(1.1)

    with time_machine.travel(time.time() + ahead_s):
        assert is_expired(queue)


def test_redelivered_message_expires_by_the_same_clock(queue: Celery) -> None:
    queue.send_task("nothing", expires=20)
    with time_machine.travel(time.time() + 3600):
        message = take(queue)
        assert message.channel is not None
        message.channel.qos.restore_by_tag(message.delivery_tag)

    assert not is_expired(queue)


@pytest.fixture
def queue(redis_url: str) -> Iterator[Celery]:
    """A queue of this test, as beat and worker use it."""
    url = redis_url.rsplit("/", 1)[0] + "/12"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    with Celery(broker=url, set_as_current=False) as celery:
        celery.conf.task_default_queue = "control"
        celery.task(name="nothing")(_nothing)
        yield celery
    while _connections:
        _connections.pop().release()


def _nothing() -> None: ...


_connections: list[Connection] = []  # of ``take``; a message needs its connection


def take(queue: Celery) -> Message:
    connection = queue.connection()
    _connections.append(connection)
    found = Queue("control")(connection.default_channel).get()
    assert isinstance(found, Message)
    return found


def is_expired(queue: Celery) -> bool:
    """Return whether a worker would discard the message."""
    message = take(queue)
    request = Request(message, app=queue, task=queue.tasks["nothing"])
    return bool(request.maybe_expire())
