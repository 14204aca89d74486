-- The kind of difference, one row per offset that either side has; kind is null for equal records.
-- A record keeps its timestamp but not the timestamp type: a stock broker accepts only CreateTime from producers, so a record with
-- LogAppendTime at the source has CreateTime on its mirror, and the other way round after the directions were reversed.
SELECT
    b.partition,
    coalesce(s.offset, m.offset) AS offset,
    CASE
        WHEN m.offset IS NULL THEN 'missing'
        WHEN s.offset IS NULL THEN 'extra'
        WHEN NOT s.key <=> m.key THEN 'key'
        WHEN NOT (s.value_bytes <=> m.value_bytes AND s.value_digest <=> m.value_digest) THEN 'value'
        WHEN NOT s.headers <=> m.headers THEN 'headers'
        WHEN s.timestamp_ms <> m.timestamp_ms THEN 'timestamp'
    END AS kind,
    s.offset AS source_offset,
    m.offset AS mirror_offset,
    coalesce(s.key, m.key) AS any_key,
    s.value_bytes IS NULL AND m.value_bytes IS NULL AS tombstone,
    coalesce(octet_length(s.key), octet_length(m.key), 0) + coalesce(s.value_bytes, m.value_bytes, 0) AS bytes,
    b.first_offset,
    b.end_offset,
    struct(s.key, s.value, s.headers, s.timestamp_ms, s.timestamp_type) AS source_record,
    struct(m.key, m.value, m.headers, m.timestamp_ms, m.timestamp_type) AS mirror_record
FROM {source} AS s
FULL OUTER JOIN {mirror} AS m ON s.partition = m.partition AND s.offset = m.offset
INNER JOIN {bounds} AS b ON coalesce(s.partition, m.partition) = b.partition
