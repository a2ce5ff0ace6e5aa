"""Whether a database has the schema that its migrations make, and nothing else."""

import re
import sqlite3
from contextlib import closing
from typing import NamedTuple

from orchestrator.ground.store.database_file import build_schema

# More than any schema of ours has.
_MOST_OBJECTS = 10_000
_VERSIONS_TABLE = "schema_version"
_MOST_SHOWN = 80
# Versions of SQLite differ in the quotes and spaces of statements that they rewrite.
_IGNORED = re.compile(r"[\s\"`\[\]]+")


class _Object(NamedTuple):
    """A table, index, trigger or view, and the statement that makes it."""

    kind: str
    name: str
    table: str
    sql: str


def difference(connection: sqlite3.Connection) -> str | None:
    """The first object that is foreign, missing or changed, in words; None if there is none.

    It reads only the list of the schema's objects and, once that table is known to be ours, the
    list of migrations. Raises: sqlite3.Error, StoreError.
    """
    found = _objects(connection)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as ours:
        build_schema(ours, ())
        versions = _objects(ours)
        if not versions <= found:
            return f"no table {_VERSIONS_TABLE}, or another one"
        query = f"SELECT version FROM {_VERSIONS_TABLE} LIMIT ?"  # noqa: S608 - ours
        rows = connection.execute(query, (_MOST_OBJECTS,))
        build_schema(ours, {version for (version,) in rows})
        expected = _objects(ours)
    names = {each.name for each in expected}
    for each in sorted(found - expected):
        what = "changed" if each.name in names else "foreign"
        return f"a {what} {each.kind[:_MOST_SHOWN]} {each.name[:_MOST_SHOWN]!r}"
    for each in sorted(expected - found):
        return f"no {each.kind} {each.name!r}"
    return None


def _objects(connection: sqlite3.Connection) -> frozenset[_Object]:
    query = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema LIMIT ?"
    rows = connection.execute(query, (_MOST_OBJECTS,))
    return frozenset(
        _Object(str(kind), str(name), str(table), _IGNORED.sub("", str(sql)))
        for kind, name, table, sql in rows
    )
