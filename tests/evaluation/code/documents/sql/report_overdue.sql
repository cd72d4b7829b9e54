-- Boats whose owners have not paid for more than 45 days, the largest debt first.
-- Goes to the harbour master on paper, never by mail.

SELECT
    boat.name,
    boat.owner,
    count(*) AS bills,
    sum(bill.cents) / 100.0 AS debt,
    min(date(bill.printed, 'unixepoch')) AS oldest
FROM bill
JOIN boat ON boat.id = bill.boat
WHERE
    bill.paid IS NULL
    AND bill.printed < unixepoch('now', '-45 days')
    -- Council boats settle once a year, in March.
    AND boat.owner NOT LIKE 'Port Ellery Council%'
GROUP BY boat.id
HAVING debt > 20
ORDER BY debt DESC, oldest
LIMIT 40;

-- Boats that left without paying: the list for the neighbouring harbours.
SELECT boat.name, max(date(stay.left_at, 'unixepoch')) AS gone
FROM boat
JOIN stay ON stay.boat = boat.id
JOIN bill ON bill.boat = boat.id AND bill.paid IS NULL
GROUP BY boat.id
HAVING count(*) = count(stay.left_at);
