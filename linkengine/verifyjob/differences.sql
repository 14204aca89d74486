-- What do the first records that differ look like on both sides?
SELECT
    c.partition,
    c.offset,
    c.kind,
    c.source_record,
    c.mirror_record
FROM {compared} AS c
INNER JOIN {bounds} AS b ON c.partition = b.partition
WHERE c.kind IS NOT NULL AND c.offset >= b.first_offset AND c.offset < b.end_offset
ORDER BY c.partition, c.offset
LIMIT 20
