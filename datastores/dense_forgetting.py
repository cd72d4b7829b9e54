"""Forgetting sources in a dense index that nobody has open: no model, faiss or thread is needed."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from datastores.database import Store
from datastores.dense_schema import DENSE
from datastores.erasure import erase_wanted, want_erasure


def retain(path: Path, prefixes: tuple[str, ...], wanted: Collection[str]) -> None:
    """Leave no byte of sources that begin with one of `prefixes` and are not `wanted`.

    A damaged index that was set aside is deleted: it may hold them, and its states can be made
    again.

    Raises:
        StoreError: the index cannot be written, or another process keeps an older state of it;
            calling this again finishes the work.
    """
    with closing(Store(path, DENSE)) as store:
        with store.writing() as db:
            sources = {row["source"] for row in db.query("SELECT DISTINCT source FROM documents")}
            gone = [one for one in sources if one.startswith(prefixes) and one not in wanted]
            if gone:
                db.conn.executemany(
                    "DELETE FROM documents WHERE source = ?", [(source,) for source in gone]
                )
                want_erasure(db)
        erase_wanted(store)
    for part in path.parent.glob(f"{path.name}.corrupt-*"):
        part.unlink()
