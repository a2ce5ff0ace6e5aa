"""Functions that a statement can call in a notation that does not look like a call.

PostgreSQL reads `x.f` and `(x).f` as f(x) if x has no column f, and a cast to a user-defined type
runs that type's functions. SQLite has tables that are functions. Everything that may be such a call
is reported as one, because a parser has no tables in which to look it up.
"""

import re
from collections.abc import Iterator

from sqlglot import exp

# PostgreSQL functions that do more than compute, by the beginnings of their names.
_POSTGRES_FUNCTIONS = re.compile(
    r"(pg|lo|dblink|txid|inet|(query|table|cursor|schema|database)_to)_.*|dblink"
    r"|(next|curr|last|set)val|set_config|current_setting"
)
# Functions without parentheses; PostgreSQL allows them in place of a table.
_POSTGRES_VALUES = re.compile(r"(current|session|system)_[a-z]+|localtime(stamp)?|user")
_POSTGRES_TYPES = frozenset(
    {"char", "cidr", "macaddr", "macaddr8", "tsvector", "tsquery", "varbit", "box", "citext"}
)
# Tables of SQLite's library and shell that are functions: they read files, pages and settings.
_SQLITE_TABLES = re.compile(
    r"fsdir|zipfile|dbstat|bytecode|tables_used|pragma_.*"
    r"|sqlite_(?!(temp_)?(master|schema)$|sequence$|stat[14]$|version$).*"
)

_SOURCES = (exp.Table, exp.Lateral, exp.Unnest, exp.Values, exp.Subquery, exp.CTE)


def hidden_calls(tree: exp.Expr, dialect: str) -> Iterator[str]:
    """The names, in lower case, of functions that a tree may call in this way."""
    if dialect == "postgres":
        yield from _attributes(tree)
        yield from _casts(tree)
    if dialect == "sqlite":
        names = [node.name.lower() for node in tree.find_all(exp.Identifier)]
        # IN 'name' refers to a table, too.
        names += [node.args["field"].name.lower() for node in _in_tables(tree)]
        yield from filter(_SQLITE_TABLES.fullmatch, names)


def _in_tables(tree: exp.Expr) -> Iterator[exp.In]:
    return (node for node in tree.find_all(exp.In) if node.args.get("field") is not None)


def _attributes(tree: exp.Expr) -> Iterator[str]:
    """Names after a dot, if the part before it may be a value that a function accepts."""
    tables, functions = _sources(tree)
    for column in tree.find_all(exp.Column):
        name, table = column.name.lower(), column.table.lower()
        if not table or isinstance(column.this, exp.Star):
            continue
        if table in functions or table not in tables:
            plain = name in functions.get(table, ())
        else:
            plain = _POSTGRES_FUNCTIONS.fullmatch(name) is None
        if not plain:
            yield name
    for dot in tree.find_all(exp.Dot):
        if isinstance(dot.expression, exp.Identifier) and not isinstance(dot.parent, exp.DataType):
            yield dot.expression.name.lower()


def _sources(tree: exp.Expr) -> tuple[set[str], dict[str, set[str]]]:
    """The names of tables, and of functions in their place with their columns' names."""
    tables, functions = {"excluded"}, dict[str, set[str]]()
    for node in tree.find_all(*_SOURCES):
        name = node.alias_or_name.lower()
        if _is_function(node):
            columns = {column.name.lower() for column in _columns(node)} | {name}
            functions[name] = functions.get(name, columns) & columns
        else:
            tables.add(name)
    return tables, functions


def _is_function(node: exp.Expr) -> bool:
    if isinstance(node, exp.Unnest):
        return True
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return not node.db and _POSTGRES_VALUES.fullmatch(node.name.lower()) is not None
    return isinstance(node, exp.Table | exp.Lateral) and not isinstance(node.this, exp.Subquery)


def _columns(node: exp.Expr) -> list[exp.Expr]:
    alias = node.args.get("alias")
    return [] if alias is None else alias.args.get("columns") or []


def _casts(tree: exp.Expr) -> Iterator[str]:
    """Types that are not built into PostgreSQL."""
    for cast in tree.find_all(exp.Cast):
        for part in cast.args["to"].find_all(exp.DataType):
            kind = part.args.get("kind")
            name = kind.sql().replace('"', "").lower() if isinstance(kind, exp.Expr) else ""
            if name and name not in _POSTGRES_TYPES:
                yield name
