"""Celery tasks: each loads rows, calls the engine once and passes the result to ``console.reconciling`` or an action.

Tasks are sent by name only (``console.queue.dispatch``), take keyword arguments, are safe to run twice and bounded in time.
Only this package of the console may import ``linkengine.jobs``.
"""

from console.tasks import (
    batch_stop,
    browsing,
    bulkoperations,
    comparing,
    covering,
    drills,
    gates,
    linktasks,
    mirrors,
    namespaces,
    pool,
    probes,
    reconcile,
    reparenting,
    restoring,
    reversing,
    stopping,
    verifying,
)

__all__ = [
    "batch_stop",
    "browsing",
    "bulkoperations",
    "comparing",
    "covering",
    "drills",
    "gates",
    "linktasks",
    "mirrors",
    "namespaces",
    "pool",
    "probes",
    "reconcile",
    "reparenting",
    "restoring",
    "reversing",
    "stopping",
    "verifying",
]
