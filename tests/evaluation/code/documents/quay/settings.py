"""Settings: a file, overridden by environment variables."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_FILE = Path("/etc/quaymaster.ini")
PREFIX = "QUAY_"


@dataclass(frozen=True)
class HarbourSettings:
    """What can be set.

    Attributes:
        database: path of the SQLite file.
        county_url: where readings are sent.
        batch_rows: rows in a request; the county refuses more than 500.
        keep_days: how long raw lines are kept before they are thinned out.
    """

    database: Path = Path("/var/lib/quaymaster/quay.db")
    county_url: str = "https://county.invalid/tides/v3"
    batch_rows: int = 480
    keep_days: int = 400


def load_settings(
    file: Path = DEFAULT_FILE, environment: Mapping[str, str] = os.environ
) -> HarbourSettings:
    """Merge the file with the variables; an unknown key is an error that names the nearest one."""
    parser = configparser.ConfigParser()
    parser.read(file)
    values = dict(parser["quay"]) if parser.has_section("quay") else {}
    for name, value in environment.items():
        if name.startswith(PREFIX):
            values[name.removeprefix(PREFIX).lower()] = value
    _refuse_unknown(values)
    return HarbourSettings(
        database=Path(values.get("database", HarbourSettings.database)),
        county_url=values.get("county_url", HarbourSettings.county_url),
        batch_rows=int(values.get("batch_rows", HarbourSettings.batch_rows)),
        keep_days=int(values.get("keep_days", HarbourSettings.keep_days)),
    )


def _refuse_unknown(values: Mapping[str, str]) -> None:
    from difflib import get_close_matches

    known = list(HarbourSettings.__dataclass_fields__)
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SystemExit(f"unknown setting {name}{hint}")
