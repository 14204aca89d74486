-- Digest of one topic: one row per block of offsets that has records. Only these rows are shuffled.
-- The hashes of the records are combined by exclusive or: the order of reading does not matter, and each hash covers the offset.
-- Nulls do not enter a hash, hence the lengths. The secret is new in every comparison.
SELECT
    partition,
    offset DIV :block_offsets AS block,
    count(*) AS records,
    sum(greatest(key_bytes, 0) + greatest(value_bytes, 0)) AS bytes,
    bit_xor(xxhash64(:secret, partition, offset, timestamp_ms, key_bytes, value_bytes, digest, headers)) AS secret_hash,
    bit_xor(xxhash64(1, partition, offset, timestamp_ms, key_bytes, value_bytes, digest, headers)) AS first_hash,
    bit_xor(xxhash64(2, partition, offset, timestamp_ms, key_bytes, value_bytes, digest, headers)) AS second_hash
FROM (
    SELECT
        partition,
        offset,
        timestamp_ms,
        coalesce(octet_length(key), -1) AS key_bytes,
        coalesce(octet_length(value), -1) AS value_bytes,
        sha2(concat(coalesce(key, X''), coalesce(value, X'')), 256) AS digest,
        to_json(headers) AS headers
    FROM {topic}
) AS record
GROUP BY partition, offset DIV :block_offsets
