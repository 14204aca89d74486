-- Equality per block of offsets, with the records, bytes and hashes of the mirror.
SELECT
    coalesce(s.partition, m.partition) AS partition,
    coalesce(s.block, m.block) AS block,
    coalesce(m.records, 0) AS records,
    coalesce(m.bytes, 0) AS bytes,
    coalesce(m.first_hash, 0) AS first_hash,
    coalesce(m.second_hash, 0) AS second_hash,
    coalesce(
        s.records = m.records
        AND s.bytes = m.bytes
        AND s.secret_hash = m.secret_hash
        AND s.first_hash = m.first_hash
        AND s.second_hash = m.second_hash,
        false
    ) AS equal
FROM {source} AS s
FULL OUTER JOIN {mirror} AS m ON s.partition = m.partition AND s.block = m.block
ORDER BY 1, 2
