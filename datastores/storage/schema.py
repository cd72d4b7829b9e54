"""The tables of a store, and the conversion of files of earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from sqlite_utils import Database

SEQUENCES = "sqlite_sequence"
"""The table in which SQLite keeps the largest id that each AUTOINCREMENT table ever had."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a store.

    Attributes:
        version: increases whenever `create` changes, or its tables are to be filled again.
        create: creates the tables, indexes and triggers in an empty database.
        lasting: tables that every version has, with all columns that have no default.
        cache: whether the owner fills an empty file again; a file of an earlier version is then
            emptied. Otherwise it keeps the columns that both versions have.
        convert: converts the kept content to this version; None if that is not needed.
    """

    version: int
    create: Callable[[Database], None]
    lasting: frozenset[str] = frozenset()
    cache: bool = False
    convert: Callable[[Database], None] | None = None


def convert(db: Database, schema: Schema) -> None:
    """Create the tables of `schema`, filled with the earlier version's values of the same columns,
    in one transaction."""
    db.conn.execute("PRAGMA foreign_keys = OFF")  # tables are dropped and filled in any order
    with db.atomic():
        tables = _tables(db.conn, "table")
        kept = [] if schema.cache else tables
        for table in kept:
            db.conn.execute(f"CREATE TEMP TABLE old_{table} AS SELECT * FROM main.{table}")
        for table in (*_tables(db.conn, "virtual"), *tables):
            if table != SEQUENCES:  # its rows are deleted with their tables
                db.conn.execute(f"DROP TABLE main.{table}")
        schema.create(db)
        for table in kept:
            _take_over(db.conn, table)
        if kept and schema.convert is not None:
            schema.convert(db)
        db.conn.execute(f"PRAGMA user_version = {schema.version}")
    db.conn.execute("PRAGMA foreign_keys = ON")


def _tables(connection: sqlite3.Connection, kind: str) -> list[str]:
    """The tables of a kind; `SEQUENCES` comes last, since filling the others changes it."""
    sql = (
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = ?"
        " AND (name NOT LIKE 'sqlite!_%' ESCAPE '!' OR name = ?) ORDER BY name = ?"
    )
    return [name for (name,) in connection.execute(sql, (kind, SEQUENCES, SEQUENCES))]


def _take_over(connection: sqlite3.Connection, table: str) -> None:
    """Fill `table` with the saved rows, if the table still exists."""
    known = table_columns(connection)
    names = ", ".join(
        name
        for (name,) in connection.execute(f"SELECT name FROM pragma_table_info('old_{table}')")
        if (table, name) in known
    )
    if names:
        connection.execute(f"DELETE FROM main.{table}")
        connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM old_{table}")
    connection.execute(f"DROP TABLE old_{table}")


def table_columns(connection: sqlite3.Connection, which: str = "true") -> set[tuple[str, str]]:
    """Each column with its table, for which the SQL expression `which` holds."""
    return set(
        connection.execute(
            "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c"
            f" WHERE m.type = 'table' AND {which}"
        )
    )
