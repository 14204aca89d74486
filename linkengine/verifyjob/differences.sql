-- The records of both sides at the given places. A place that has become equal since it was found is left out.
SELECT
    c.partition,
    c.offset,
    c.kind,
    c.source_record,
    c.mirror_record
FROM {compared} AS c
INNER JOIN {places} AS p ON c.partition = p.partition AND c.offset = p.offset
WHERE c.kind IS NOT NULL
ORDER BY c.partition, c.offset
