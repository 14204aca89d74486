"""The independent witness: Spark SQL reads both topics with Spark's own Kafka source and compares record by record.

Shares no code with the copier, on purpose: what one gets wrong the other must see. Knows domain values and the Spark session.
"""
