-- How much space each table and index takes in the database file, in kilobytes.
-- Needs sqlite3 with the dbstat table; Debian's has it.

SELECT
    name,
    count(*) AS pages,
    sum(pgsize) / 1024 AS kilobytes,
    round(100.0 * sum(unused) / sum(pgsize), 1) AS percent_empty
FROM dbstat
GROUP BY name
ORDER BY kilobytes DESC
LIMIT 12;

-- Pages on the free list: worth a VACUUM above a fifth.
SELECT
    freelist_count AS free_pages,
    page_count AS all_pages,
    round(1.0 * freelist_count / page_count, 3) AS share
FROM pragma_freelist_count, pragma_page_count;

-- Readings per year, to see what thinning has left.
SELECT
    strftime('%Y', at, 'unixepoch') AS year,
    gauge,
    count(*) AS readings,
    sum(receipt = 'legacy') AS legacy
FROM reading
GROUP BY year, gauge
ORDER BY year DESC;
