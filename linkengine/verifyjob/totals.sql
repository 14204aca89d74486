-- How much was compared between the bounds, and how much of it differs? One row per partition that has records.
SELECT
    partition,
    count(*) AS records,
    sum(bytes) AS bytes,
    count(kind) AS differences,
    min(CASE WHEN kind = 'extra' THEN offset END) AS first_extra,
    min(source_offset) AS first_source_offset,
    min(CASE WHEN kind IS NOT NULL THEN offset END) AS first_difference,
    max(CASE WHEN kind IS NOT NULL THEN offset END) AS last_difference
FROM {compared}
WHERE offset >= first_offset AND offset < end_offset
GROUP BY partition
ORDER BY partition
