"""Cluster links: which rows belong to the same link."""
