-- Repairs stays that were entered twice when the office's tablet lost its network (June 2025).
-- Two stays are the same if boat and berth agree and the arrivals are less than 20 minutes apart.
-- Run inside a transaction and look at the count before COMMIT; it was 63 the first time.

BEGIN;

CREATE TEMP TABLE doubled AS
SELECT later.rowid AS extra, earlier.rowid AS kept
FROM stay AS earlier
JOIN stay AS later
    ON later.boat = earlier.boat
    AND later.berth = earlier.berth
    AND later.arrived - earlier.arrived BETWEEN 1 AND 1199;

-- A departure may be on either of the two: keep the later one.
UPDATE stay
SET left_at = (
    SELECT max(other.left_at)
    FROM stay AS other
    WHERE other.rowid IN (
        SELECT extra FROM doubled WHERE kept = stay.rowid
        UNION SELECT stay.rowid
    )
)
WHERE rowid IN (SELECT kept FROM doubled);

DELETE FROM stay WHERE rowid IN (SELECT extra FROM doubled);

SELECT changes() AS removed;
