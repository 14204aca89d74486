"""Sync jobs besides the records: topics with their partitions and configs, consumer offsets and ACLs. One subject per file.

Every request goes through ``linkengine.kafka``. These modules must not know Spark, Redis, the copy loop or the console.
"""
