"""A worker outlives its queue: what Celery does with a connection whose Redis has gone must not end it."""

import logging
from pathlib import Path

from kombu import Connection, Queue
from kombu.common import ignore_errors

from console.celery import app
from console.redisqueue import Transport
from devcluster.redis import RedisServer


def test_closing_a_connection_whose_redis_has_gone_with_tasks_unacknowledged_raises_nothing(tmp_path: Path) -> None:
    server = RedisServer(directory=tmp_path).start()
    try:
        connection = Connection(server.url)
        assert isinstance(connection.transport, Transport)
        queue = Queue("work")(connection.default_channel)
        queue.declare()
        connection.Producer().publish("a task", routing_key="work")
        message = queue.get()
        server.kill()

        connection._do_close_transport()  # as Celery's clean-up leaves it
        ignore_errors(connection, message.channel.close)
        message.ack_log_error(logging.getLogger(__name__), connection.connection_errors)
    finally:
        server.stop()


def test_the_console_uses_that_transport() -> None:
    assert isinstance(app.connection_for_write().transport, Transport)


def test_a_worker_waits_for_its_queue_for_as_long_as_it_takes() -> None:
    assert app.conf.broker_connection_max_retries is None
