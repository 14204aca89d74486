"""The work queue: how tasks are signed, sent and scheduled. The Celery app itself is ``console.celery``."""
