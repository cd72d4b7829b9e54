-- Nights per berth and month, and what share of the month it was taken.
-- For the council's meeting in January; ask for one year with `.param set :year 2024`.

WITH RECURSIVE
night (at) AS (
    SELECT unixepoch(:year || '-01-01 23:00')
    UNION ALL
    SELECT at + 86400 FROM night
    WHERE at + 86400 < unixepoch((:year + 1) || '-01-01')
),
taken AS (
    SELECT
        stay.berth,
        strftime('%m', night.at, 'unixepoch') AS month,
        count(*) AS nights
    FROM night
    JOIN stay
        ON stay.arrived <= night.at
        AND coalesce(stay.left_at, unixepoch()) > night.at
    GROUP BY stay.berth, month
)
SELECT
    berth,
    month,
    nights,
    round(100.0 * nights / 30.4, 1) AS percent
FROM taken
-- The lifeboat and the pilot do not count.
WHERE berth NOT IN (1, 24)
ORDER BY berth, month;
