-- Leaves out the records of only one side that compaction may have removed from the other side; see ADR 0002. These are:
-- * a record that is not the newest of its key on its own side: of the whole mirror, or of the source below the end. A reader of
--   the mirror finds a later record there; what the source has beyond the end does not help that reader;
-- * a record after which the other side has a later record of the key;
-- * a newest tombstone, if the newest record of the other side is a tombstone or does not exist;
-- * a record without a key: the log cleaner removes it on either side.
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
