"""The copy job: the loop that copies partitions inside a Spark task, from lease to release, and its submission.

Knows Kafka through ``linkengine.kafka``, bytes through ``linkengine.batches``, and the world outside through ports. Must not
know databases, pages or who ordered the copy.
"""
