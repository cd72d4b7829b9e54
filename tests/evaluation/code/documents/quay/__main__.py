"""The command line."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta

from . import EXIT_COUNTY_UNREACHABLE, EXIT_NOTHING_TO_DO, EXIT_OK, VERSION
from .settings import load_settings
from .storage import open_database, thin_out
from .uploader import CountyDownError, upload_pending


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser("quay", description="Tides and berths of Port Ellery")
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("upload", help="send to the county what it has not confirmed")
    thin = commands.add_parser("thin", help="keep one reading an hour of old ones")
    thin.add_argument("--older-than", type=int, metavar="DAYS")
    chosen = parser.parse_args(arguments)
    settings = load_settings()
    with open_database(settings.database) as connection:
        if chosen.command == "thin":
            days = chosen.older_than or settings.keep_days
            deleted = thin_out(connection, datetime.now(UTC) - timedelta(days=days))
            print(f"{deleted} readings deleted")
            return EXIT_OK
        try:
            sent = upload_pending(connection, settings.county_url, settings.batch_rows)
        except CountyDownError as error:
            print(f"quay: {error}", file=sys.stderr)
            return EXIT_COUNTY_UNREACHABLE
    return EXIT_OK if sent else EXIT_NOTHING_TO_DO


if __name__ == "__main__":
    raise SystemExit(main())
