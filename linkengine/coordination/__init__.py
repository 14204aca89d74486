"""The engine's use of Redis: partition leases, assignments to copy workers, and their reports.

Everything in Redis may be lost at any time without harm to a mirror: leases only save work (the destination's broker fences
stale writers), assignments are written again from the database, progress is reported again within a second. The package uses
neither Kafka nor Spark.
"""
