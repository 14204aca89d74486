"""Celery's settings. Read when the app is first used, so that importing the app needs no environment."""

from typing import Any

from django.conf import settings
from kombu import Queue

from console.queue.scheduler import EVERY_S
from console.queue.transport import broker_settings

broker_url, broker_use_ssl, _sentinel = broker_settings(settings.REDIS_URL)
broker_connection_retry_on_startup = True
broker_connection_max_retries = None  # an outage of Redis may last a night; by default the worker exits after 100 attempts
broker_transport_options = {
    "visibility_timeout": 600,  # s; longer than any task that is acknowledged late, else it would be delivered twice
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "max_retries": 1,  # a page must not wait for Redis during an outage
    "interval_start": 0,
    "interval_max": 0.2,
    **_sentinel,
}

task_queues = (Queue("control"), Queue("spark"))  # a worker may consume a single queue: ``-Q``
task_default_queue = "control"
task_routes = {name: {"queue": "spark"} for name in ("run_copy_worker", "verify_mirror", "verify_next")}
task_serializer = "json"
accept_content = ["json"]
task_ignore_result = True  # results go to waiting callers by ``console.queue.dispatch``, which survives an outage of Redis
task_acks_late = True
task_reject_on_worker_lost = False  # the reconciler sends again what is still needed
task_track_started = False

worker_pool = "threads"
worker_concurrency = settings.WORKER_THREADS
worker_prefetch_multiplier = 1
worker_hijack_root_logger = False
worker_send_task_events = False
worker_cancel_long_running_tasks_on_connection_loss = False
enable_utc = True

beat_scheduler = "console.queue.scheduler:SteadyScheduler"
beat_schedule: dict[str, dict[str, Any]] = {
    "reconcile": {"task": "reconcile", "schedule": 1.0, "options": {"expires": 2}},
    "refresh-topics": {"task": "refresh_topics", "schedule": EVERY_S["refresh_topics"], "options": {"expires": 25}},
    "probe-clusters": {"task": "probe_clusters", "schedule": EVERY_S["probe_clusters"], "options": {"expires": 50}},
    "probe-spark": {"task": "probe_spark", "schedule": EVERY_S["probe_spark"], "options": {"expires": 8}},
    "forget-old-rows": {"task": "forget_old_rows", "schedule": EVERY_S["forget_old_rows"], "options": {"expires": 3000}},
}
beat_schedule_filename = str(settings.BASE_DIR / "var" / "beat-schedule")
