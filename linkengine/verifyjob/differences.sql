-- What do the records at these places look like on both sides?
SELECT
    c.partition,
    c.offset,
    c.kind,
    c.source_record,
    c.mirror_record
FROM {compared} AS c
INNER JOIN {places} AS p ON c.partition = p.partition AND c.offset = p.offset
ORDER BY c.partition, c.offset
