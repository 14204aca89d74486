-- Which one-sided records may compaction have removed from the other side? They are left out: both sides compact on their own.
-- Compaction removes a record that a later one with the same key replaces, and a tombstone after its retention; nothing else.
SELECT compared.* EXCEPT (newest_offset)
FROM (
    SELECT *, max(offset) OVER (PARTITION BY partition, any_key) AS newest_offset FROM {compared}
) AS compared
WHERE
    kind IS NULL
    OR kind NOT IN ('missing', 'extra')
    OR any_key IS NULL
    OR NOT (tombstone OR offset < newest_offset)
