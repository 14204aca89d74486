-- How much was compared between the bounds, and how much of it differs? One row per partition that has records.
SELECT
    b.partition,
    count(*) AS records,
    coalesce(sum(c.bytes), 0) AS bytes,
    count(c.kind) AS differences,
    count_if(c.kind = 'extra') AS extras,
    min(c.source_offset) AS first_source_offset,
    min(CASE WHEN c.kind IS NOT NULL THEN c.offset END) AS first_difference,
    max(CASE WHEN c.kind IS NOT NULL THEN c.offset END) AS last_difference
FROM {compared} AS c
INNER JOIN {bounds} AS b ON c.partition = b.partition
WHERE c.offset >= b.first_offset AND c.offset < b.end_offset
GROUP BY b.partition
ORDER BY b.partition
