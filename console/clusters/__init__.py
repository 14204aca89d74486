"""Clusters: live queries and changes through a worker."""
