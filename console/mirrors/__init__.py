"""Mirror topics: operations and their rules, states, progress, lineage, and exports of diverged records."""
