"""Our own additions below /api/v1: verify runs, gaps, transitions, partitions, rates. Fields are in snake case."""
