-- The first places (partition and offset) with a difference.
SELECT
    partition,
    offset
FROM {compared}
WHERE kind IS NOT NULL AND offset >= first_offset AND offset < end_offset
ORDER BY partition, offset
LIMIT 20
