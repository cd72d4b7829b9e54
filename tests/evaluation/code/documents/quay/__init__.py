"""quaymaster: tide gauges, berth meters and bills of Port Ellery.

The modules follow the way of a reading: `serial_port` reads a line, `parsing` makes a `Reading` of
it, `calibration` corrects it, `storage` keeps it, `outliers` marks it, `uploader` sends it to the
county. Bills go the other way: `meters` computes consumption, `tariffs` prices it, `invoices`
prints it.

Units: metres above chart datum, kilowatt hours, cents. Times are UTC and timezone-aware. A module
that needs the clock takes it as an argument, so that the checks can stop it.
"""

from __future__ import annotations

VERSION = "2025.4"
"""Year and number of the release; the county's server logs it."""

USER_AGENT = f"quaymaster/{VERSION} (Port Ellery)"

HARBOUR_CODE = "ELY-7"
"""Our code at the county; part of each file name and of each invoice number."""

EXIT_OK = 0
EXIT_NOTHING_TO_DO = 3
EXIT_COUNTY_UNREACHABLE = 75
"""Cron tries again when a command ends with this one (EX_TEMPFAIL)."""
