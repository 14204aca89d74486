"""The write side: what people and the engine change. One module per noun.

Every function takes keywords only, ``by`` (who) and ``now`` (when), checks the permission first, makes its change and its audit
row in one transaction, and queues work after the commit. Refusals are ``console.errors``. Kafka is never touched from here.
"""
