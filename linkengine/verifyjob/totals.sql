-- Records, bytes and differences between the bounds: one row per block of offsets that has records.
SELECT
    partition,
    offset DIV :block_offsets AS block,
    count(*) AS records,
    sum(bytes) AS bytes,
    count(kind) AS differences
FROM {compared}
WHERE offset >= first_offset AND offset < end_offset
GROUP BY partition, offset DIV :block_offsets
