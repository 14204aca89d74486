-- Which records that only one side has may compaction have removed from the other? Those are left out; see ADR 0002.
-- Accepted are: a record that is not the newest of the key, of the mirror at all or of the source below the end, since who reads
-- the mirror sees a later one there, and is not helped by what the source has; one after which the other side has a later record
-- of the key; a newest tombstone, where the other side's newest is a tombstone or nothing; a record without a key, which
-- either side's cleaner removes.
SELECT judged.* EXCEPT (own_newest, other_newest, other_below_end)
FROM (
    SELECT
        *,
        CASE kind
            WHEN 'missing' THEN max(source_offset) FILTER (WHERE offset < end_offset) OVER same_key
            WHEN 'extra' THEN max(mirror_offset) OVER same_key
        END AS own_newest,
        CASE kind
            WHEN 'missing' THEN max(mirror_offset) OVER same_key
            WHEN 'extra' THEN max(source_offset) OVER same_key
        END AS other_newest,
        CASE kind
            WHEN 'missing' THEN max_by(tombstone, mirror_offset) FILTER (WHERE offset < end_offset) OVER same_key
            WHEN 'extra' THEN max_by(tombstone, source_offset) FILTER (WHERE offset < end_offset) OVER same_key
        END AS other_below_end
    FROM {compared}
    WINDOW same_key AS (PARTITION BY partition, any_key)
) AS judged
WHERE
    kind IS NULL
    OR kind NOT IN ('missing', 'extra')
    OR NOT (
        any_key IS NULL
        OR offset < own_newest
        OR offset < coalesce(other_newest, -1)
        OR (tombstone AND coalesce(other_below_end, true))
    )
