"""Generations of keys: the projection each was made with, and which of them serves.

At most one serves and at most one is building. Dropping a generation drops its keys with it. Owns
that table. Refuses to know what keys look like and when a new generation is due.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlite_utils import Database

from datastores.dense.projection import Projection, unpack_projection
from datastores.errors import StoreError
from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.integrity import verify_checksum, with_checksum
from datastores.storage.sqlite import Store

SERVING, BUILDING = "serving", "building"


@dataclass(frozen=True, slots=True)
class Generation:
    """One projection and the keys made with it.

    Attributes:
        states: how many states its projection was fitted to, or last found to do for.
        explained: share of their variance it keeps.
    """

    id: int
    serving: bool
    projection: Projection
    states: int
    explained: float


class Generations:
    """The generations of one store. Methods raise StoreError where the file cannot be used."""

    def __init__(self, store: Store, fingerprint: str) -> None:
        """Those of the model of `fingerprint`: projections of another one's states are damage."""
        self._store = store
        self._fingerprint = fingerprint

    def all(self) -> list[Generation]:
        """The serving generation, then the one that is building, as far as they exist."""
        rows = self._store.rows("SELECT * FROM generations ORDER BY state DESC")
        return [
            Generation(
                row["id"],
                row["state"] == SERVING,
                self._projection(row["projection"]),
                row["states"],
                row["explained"],
            )
            for row in rows
        ]

    def ids(self) -> list[int]:
        """Ids of `all`."""
        rows = self._store.rows("SELECT id FROM generations ORDER BY state DESC")
        return [row["id"] for row in rows]

    def begin(self, projection: Projection, states: int, explained: float) -> None:
        """Start a generation. The first one serves at once; a later one is building until
        `promote`, and replaces any other that is."""
        with self._store.writing() as db:
            db.conn.execute("DELETE FROM generations WHERE state = ?", (BUILDING,))
            db.table("generations").insert(
                {
                    "state": BUILDING if db.table("generations").count else SERVING,
                    "projection": with_checksum(self._fingerprint, projection.pack()),
                    "states": states,
                    "explained": explained,
                }
            )

    def confirm(self, generation: Generation, states: int) -> None:
        """Note that the projection of `generation` still does for `states` states."""
        with self._store.writing() as db:
            db.conn.execute(
                "UPDATE generations SET states = ? WHERE id = ?", (states, generation.id)
            )

    def promote(self) -> None:
        """Let the generation that is building serve, if there is one; drop the old one, and give
        the room it took back to the disk."""
        with self._store.writing() as db:
            if not db.table("generations").count_where("state = ?", [BUILDING]):
                return
            db.conn.execute("DELETE FROM generations WHERE state = ?", (SERVING,))
            _make_one_serve(db)
            request_erasure(db)
        erase_requested(self._store)

    def drop_damaged(self, width: int) -> int:
        """Drop generations whose projection is damaged, another model's, or for states that are not
        `width` long; how many there were.

        Their keys mean nothing without it. The tokens stay, and are encoded anew.
        """
        rows = self._store.rows("SELECT id, projection FROM generations")
        bad = [row["id"] for row in rows if not self._fits(row["projection"], width)]
        if bad:
            with self._store.writing() as db:
                for generation in bad:
                    db.table("generations").delete(generation)
                _make_one_serve(db)
        return len(bad)

    def _projection(self, blob: bytes) -> Projection:
        try:
            return unpack_projection(verify_checksum(self._fingerprint, blob))
        except ValueError as error:
            raise StoreError(
                f"{self._store.path}: a projection is damaged; the next start fits it anew"
            ) from error

    def _fits(self, blob: bytes, width: int) -> bool:
        try:
            return unpack_projection(verify_checksum(self._fingerprint, blob)).width == width
        except ValueError:
            return False


def _make_one_serve(db: Database) -> None:
    db.conn.execute(
        "UPDATE generations SET state = ? WHERE NOT EXISTS"
        " (SELECT 1 FROM generations WHERE state = ?)",
        (SERVING, SERVING),
    )
