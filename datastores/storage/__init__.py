"""What all stores share: SQLite files, their integrity, erasure, and files between processes."""
