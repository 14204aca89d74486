"""Cluster links: configs, drafts, pairs, health, recurring tasks, and which source topics are mirrored."""
