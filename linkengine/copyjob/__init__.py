"""The copy job: the loop that copies partitions inside a Spark task while it holds their leases, and its submission.

Uses Kafka through ``linkengine.kafka``, record batches through ``linkengine.batches``, and Redis through the protocols in
``coordination_thread``. Independent of databases, pages and the caller that started the copy.
"""
