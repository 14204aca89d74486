"""Lag and throughput of links and mirrors over time: samples, charts, and what happened at the same time."""
