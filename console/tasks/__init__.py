"""Celery tasks: each loads rows, calls a procedure of ``console.workflows`` or the engine, and stores or returns the result.

Tasks are sent by name only (``console.queue.dispatch``), take keyword arguments, are safe to run twice and bounded in time.
"""

from console.tasks import clusters, links, mirrors

__all__ = ["clusters", "links", "mirrors"]
