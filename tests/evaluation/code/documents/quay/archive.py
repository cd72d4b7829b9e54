"""Monthly archives: CSV files, compressed, with a list of their hashes."""

from __future__ import annotations

import csv
import gzip
import hashlib
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

MANIFEST = "SHA256SUMS"


def export_month(connection: sqlite3.Connection, year: int, month: int, folder: Path) -> Path:
    """Write a month's readings to `tides-YYYY-MM.csv.gz`; returns the path.

    The compressed file has no time in its header, so that the same month gives the same hash.
    """
    start = datetime(year, month, 1, tzinfo=UTC)
    end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    path = folder / f"tides-{year}-{month:02d}.csv.gz"
    rows = connection.execute(
        "SELECT gauge, at, metres FROM reading WHERE at >= ? AND at < ? ORDER BY at, gauge",
        (int(start.timestamp()), int(end.timestamp())),
    )
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        lines = "".join(f"{gauge},{at},{metres:.3f}\n" for gauge, at, metres in rows)
        packed.write(b"gauge,utc_seconds,metres\n" + lines.encode())
    return path


def add_to_manifest(path: Path) -> str:
    """Replace or append the file's line in the manifest beside it; returns the hash."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest = path.parent / MANIFEST
    lines = manifest.read_text().splitlines() if manifest.exists() else []
    kept = [line for line in lines if not line.endswith(f"  {path.name}")]
    manifest.write_text("\n".join([*kept, f"{digest}  {path.name}"]) + "\n")
    return digest


def broken_archives(folder: Path) -> list[str]:
    """Names in the manifest whose file is missing or has another hash."""
    broken = []
    for line in (folder / MANIFEST).read_text().splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            broken.append(name)
    return broken


def read_month(path: Path) -> list[tuple[str, int, float]]:
    """The rows of an archive."""
    with gzip.open(path, "rt", encoding="ascii", newline="") as file:
        return [
            (row["gauge"], int(row["utc_seconds"]), float(row["metres"]))
            for row in csv.DictReader(file)
        ]
