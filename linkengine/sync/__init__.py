"""What follows the source besides records: topics, their partitions and their configs. One subject per file.

Uses ``linkengine.kafka`` for every effect; must not know Spark, Redis, the copy loop or the console.
"""
