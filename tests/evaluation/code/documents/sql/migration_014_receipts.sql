-- Replaces the flag `sent` by the county's receipt (format 3, from 1 October 2024).
-- Takes about 50 seconds on the harbour computer; stop quay-listener first.

BEGIN IMMEDIATE;

ALTER TABLE reading ADD COLUMN receipt TEXT;

-- Readings from before have no receipt; 'legacy' keeps them from being sent a second time.
UPDATE reading SET receipt = 'legacy' WHERE sent = 1;

DROP INDEX IF EXISTS reading_sent;
CREATE INDEX reading_unsent ON reading (at) WHERE receipt IS NULL;

ALTER TABLE reading DROP COLUMN sent;

-- Nothing but the last two days may be open after this.
CREATE TEMP TABLE guard (open INTEGER CHECK (open < 960));
INSERT INTO guard SELECT count(*) FROM reading WHERE receipt IS NULL;
DROP TABLE guard;

PRAGMA user_version = 14;

COMMIT;

VACUUM;
