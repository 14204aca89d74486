-- What do the records at these places look like on both sides? One that has become equal since it was found is none of them.
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
