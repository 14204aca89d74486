"""Sync jobs besides the records: topics with their partitions and configs, consumer offsets and ACLs.

Every request is sent through ``linkengine.kafka``. The modules are independent of Spark, Redis, the copy loop and the console.
"""
