-- What does a consumer see of one topic? One row per record; the digest stands for the value, which then need not be shuffled.
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
