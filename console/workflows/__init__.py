"""Resumable procedures: set-up, promote, failover, reverse, restore and deletion of mirrors, reconcile passes and syncs.

A procedure gets its rows from a Celery task (``console.tasks``), which excludes others by a lock, and calls the engine
(``linkengine.jobs``). It may end anywhere: the reconciler sends the task again, each step can be repeated, and the next attempt
continues from the rows. Nothing here imports Celery; other tasks are sent by name (``console.queue.dispatch``).
"""
