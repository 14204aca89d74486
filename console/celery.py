"""The Celery app: queues, bounds and the beat. Tasks live in ``console.tasks``; others reach them through ``console.dispatch``.

Threads, not processes: tasks wait for Kafka, Spark and the database, and a copy worker keeps a thread for hours. Tasks are
idempotent and acknowledged late; one that a dying worker loses is not waited for: the reconciler sends it again.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "console.redisqueue:Transport")
TRANSPORT_ALIASES |= {"sentinel": "console.redisqueue:SentinelTransport"}
app = Celery("console")
app.config_from_object("console.celeryconfig")
app.autodiscover_tasks(["console"])


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Keep Celery from replacing the handlers of ``console.logs``."""
