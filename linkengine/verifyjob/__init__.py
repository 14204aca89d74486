"""Verification runs: Spark SQL reads both topics with Spark's own Kafka source and compares them record by record.

Shares no code with the copy on purpose: a fault in either must be visible to the other. Depends on domain values and the Spark
session only.
"""
