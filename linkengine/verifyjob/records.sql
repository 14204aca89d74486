-- The records of one topic as a consumer reads them. The digest represents the value, so that values need not be shuffled.
SELECT
    partition,
    offset,
    key,
    headers,
    timestamp_ms,
    timestampType AS timestamp_type,
    value,
    octet_length(value) AS value_bytes,
    sha2(value, 256) AS value_digest
FROM {topic}
