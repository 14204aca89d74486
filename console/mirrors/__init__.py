"""Mirror topics: rules of their operations, migration gate, lineage, topic selection, exports of diverged records."""
