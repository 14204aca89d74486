"""Changes to the database, on behalf of users and of the engine. One module per subject.

Every function takes keyword arguments only, among them ``by`` (the actor) and ``now``. It checks the permission first, writes
its change and its audit row in one transaction, and queues Celery tasks after the commit. It raises ``console.errors`` where it
refuses. No function connects to Kafka; what needs a cluster runs in a worker (``dispatch.call``).
"""
