"""What every store stands on: SQLite files, their integrity, erasure, locks, atomic files."""
