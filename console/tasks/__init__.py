"""Celery tasks: each loads rows, calls the engine once and hands what came of it to ``console.reconciling`` or an action.

Known by name only (``console.dispatch``). Keyword arguments, safe to run twice, bounded in time. The only room of the console
that may import ``linkengine.jobs``.
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
