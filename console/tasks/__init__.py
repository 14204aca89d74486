"""Celery tasks: each loads rows, calls the engine once and passes the result to ``console.reconciling`` or an action.

Tasks are sent by name only (``console.queue.dispatch``), take keyword arguments, are safe to run twice and bounded in time.
Only this package of the console may import ``linkengine.jobs``.
"""

from console.tasks import (
    browsing,
    covering,
    drills,
    gates,
    linktasks,
    looking,
    mirrors,
    namespaces,
    pool,
    reconcile,
    reparenting,
    restoring,
    reversing,
    stopping,
    stoppingmany,
    verifying,
)

__all__ = [
    "browsing",
    "covering",
    "drills",
    "gates",
    "linktasks",
    "looking",
    "mirrors",
    "namespaces",
    "pool",
    "reconcile",
    "reparenting",
    "restoring",
    "reversing",
    "stopping",
    "stoppingmany",
    "verifying",
]
