"""Looking at a database does not disturb those who have it open."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sqlite_utils import Database

from datastores.storage.sqlite import Store

WRITER = """
import sys
from pathlib import Path
from datastores.storage.sqlite import Store
from tests.datastores.storage.test_integrity import notes
store = Store(Path(sys.argv[1]), [notes])
with store.writing() as db:
    db.table("notes").insert({"text": "written elsewhere"})
store.close()
"""


def notes(db: Database) -> None:
    db.executescript("CREATE TABLE notes (text TEXT)")


def test_opening_a_database_twice_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    log = tmp_path / "a.db-wal"
    with closing(Store(path, [notes])) as first:
        Store(path, [notes]).close()
        subprocess.run([sys.executable, "-c", WRITER, str(path)], check=True)
        # The last to close folds the log away: another process must not take itself for that.
        assert log.stat().st_size > 0
        assert first.rows("SELECT text FROM notes") == [{"text": "written elsewhere"}]
        with closing(Store(path, [notes])) as second:
            assert second.rows("SELECT text FROM notes") == [{"text": "written elsewhere"}]
