-- Tables of quaymaster. Times are seconds since 1970, UTC; heights metres above chart datum.

CREATE TABLE IF NOT EXISTS reading (
    id      INTEGER PRIMARY KEY,
    gauge   TEXT NOT NULL CHECK (gauge IN ('north', 'south')),
    at      INTEGER NOT NULL,
    metres  REAL NOT NULL CHECK (metres BETWEEN -1.5 AND 7.5),
    receipt TEXT,
    UNIQUE (gauge, at)
);

-- Only what is still to be sent; stays small.
CREATE INDEX IF NOT EXISTS reading_unsent ON reading (at) WHERE receipt IS NULL;

CREATE TABLE IF NOT EXISTS extreme (
    reading INTEGER PRIMARY KEY REFERENCES reading (id),
    is_high INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS boat (
    id           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL COLLATE NOCASE UNIQUE,
    owner        TEXT NOT NULL,
    lives_aboard INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS stay (
    boat    INTEGER NOT NULL REFERENCES boat (id),
    berth   INTEGER NOT NULL CHECK (berth BETWEEN 1 AND 38),
    arrived INTEGER NOT NULL,
    left_at INTEGER
);

-- A berth has one boat at a time.
CREATE UNIQUE INDEX IF NOT EXISTS stay_open ON stay (berth) WHERE left_at IS NULL;

CREATE TABLE IF NOT EXISTS meter_count (
    berth INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (berth, at)
) WITHOUT ROWID;
