"""Sends readings to the county, in batches, again and again until they have arrived."""

from __future__ import annotations

import json
import random
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

from . import USER_AGENT
from .storage import confirm, unsent

Post = Callable[[str, bytes], str]

FIRST_PAUSE_S = 2.5
LONGEST_PAUSE_S = 320.0
TRIES = 8


class CountyDownError(ConnectionError):
    """The county's server did not take the batch after all tries."""


def upload_pending(
    connection: sqlite3.Connection, url: str, rows: int, post: Post | None = None
) -> int:
    """Send everything unsent in batches of `rows`; returns the number of readings sent."""
    sent = 0
    while batch := unsent(connection, rows):
        body = encode_batch(batch)
        receipt = with_backoff(lambda body=body: (post or post_json)(url, body))  # type: ignore[misc]
        confirm(connection, [row[0] for row in batch], receipt)
        connection.commit()
        sent += len(batch)
    return sent


def with_backoff(
    send: Callable[[], str], sleep: Callable[[float], None] = time.sleep, tries: int = TRIES
) -> str:
    """Call `send` until it succeeds, with pauses that double and are shortened at random.

    Raises:
        CountyDownError: it failed `tries` times.
    """
    pause = FIRST_PAUSE_S
    for _ in range(tries):
        try:
            return send()
        except (urllib.error.URLError, TimeoutError):
            sleep(pause * random.uniform(0.6, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)
    raise CountyDownError(f"no answer in {tries} tries")


def encode_batch(batch: Sequence[tuple[int, str, int, float]]) -> bytes:
    """The county's format 3: gauge letter, seconds, millimetres; no spaces, sorted by time."""
    rows = [[gauge[0].upper(), at, round(metres * 1000)] for _, gauge, at, metres in batch]
    return json.dumps({"format": 3, "rows": rows}, separators=(",", ":")).encode()


def post_json(url: str, body: bytes) -> str:
    """Post and return the receipt, which is in a header and not in the body."""
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=40) as reply:
        return str(reply.headers["X-Tide-Receipt"])
