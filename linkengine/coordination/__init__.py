"""The engine's Redis door: partition leases, orders to running copy tasks, and their progress.

Everything in Redis may be lost at any moment without harm to a mirror: leases only save work (the destination's broker fences
late writers), orders are written again from the database, progress is reported again within a second. Knows no Kafka and no
Spark.
"""
