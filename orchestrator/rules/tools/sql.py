"""Determines, with a parser, what an SQL statement does and which functions it calls.

The parser is not the database's own. Everything that the two could read differently is therefore
refused, before or after parsing: comments, escapes, variables, characters beyond ASCII outside
quotes, and every part of the tree that is missing in the tables of `sql_known`.
"""

import re
from collections.abc import Container, Iterator
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.tokenizer_core import Token, TokenType

from orchestrator.rules.tools.sql_hidden import hidden_calls
from orchestrator.rules.tools.sql_known import (
    ACTIONS,
    BUILT_IN,
    HARMLESS,
    HARMLESS_NAMES,
    KINDS,
    MEMBERS,
    SYNTAX,
)
from orchestrator.rules.tools.statements import SqlError, Statement

_DIALECTS = {"postgresql": "postgres", "mysql": "mysql", "sqlite": "sqlite"}
_MAX_TOKENS = 4096
# The parser tries some syntax in several ways, and nesting multiplies the attempts.
_STEPS_PER_TOKEN = 4
_SPARE_STEPS = 200
# The parser copies a nested subscript once for each subscript around it.
_MAX_BRACKETS = 16

_QUOTED = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"|`[^`\\]*`")
# A letter before a quote changes its meaning: E'…', U&'…', _utf8'…'; psql inserts at :'…'.
_PREFIXES = re.compile(r"[A-Za-z0-9_$&:@#%]")
_SINGLE_COLON = re.compile(r"(?<!:):(?!:)")
_EXPLAIN = re.compile(r"EXPLAIN +(?=(?:SELECT|WITH) )", re.IGNORECASE)


def read_statement(text: str, dialect: str) -> Statement:
    """Reads one statement without its semicolon. Raises: SqlError."""
    known = _DIALECTS[dialect]
    _check_characters(text, known)
    tree, names = _parse(_EXPLAIN.sub("", text, count=1), known)
    if type(tree).__name__ not in ACTIONS:
        raise SqlError("it is not a statement of a known kind")
    actions: set[str] = set()
    functions = names | set(hidden_calls(tree, known))
    for node in tree.walk():
        actions.update(_actions(node))
        if isinstance(node, exp.Func):
            functions.update(_function(node, known))
    return Statement(frozenset(actions - {"select"} or actions), frozenset(functions))


def _check_characters(text: str, dialect: str) -> None:
    """Refuses characters that hide text from one of the two parsers, or are the client's syntax."""
    for quoted in _QUOTED.finditer(text):
        if _PREFIXES.match(text[: quoted.start()][-1:]):
            raise SqlError("a quote may not follow a letter, a digit or a sign directly")
    bare = _QUOTED.sub(" ", text)
    refused = "'\"`\\;{}" + {"postgres": "$", "mysql": "#[]", "sqlite": "[]#$"}[dialect]
    for found in (*refused, "--", "/*", "*/"):
        if found in bare:
            raise SqlError(f"{found} may not be in it, or is not closed")
    if "`" in text and dialect == "postgres":
        raise SqlError("` may not be in it")
    if not bare.isascii():
        raise SqlError("characters beyond ASCII must be in quotes")
    if _SINGLE_COLON.search(bare):
        raise SqlError(": may not be in it")
    if bare.count("[") > _MAX_BRACKETS:
        raise SqlError(f"it has more than {_MAX_BRACKETS} brackets")


def _parse(text: str, name: str) -> tuple[exp.Expr, set[str]]:
    """The tree, and the names that the parser alone takes for known functions."""
    dialect = sqlglot.Dialect.get_or_raise(name)
    try:
        tokens = dialect.tokenize(text)
        if len(tokens) > _MAX_TOKENS:
            raise SqlError(f"it has more than {_MAX_TOKENS} words and signs")
        _check_quoted_names(tokens)
        parser = _bounded(dialect.parser_class, len(tokens))
        trees = parser(error_level=ErrorLevel.RAISE, dialect=dialect).parse(tokens, text)
    except SqlError:
        raise
    except RecursionError:
        raise SqlError("it is nested too deeply") from None
    except Exception:  # noqa: BLE001 - odd statements trip the parser itself up: an empty `x[]`
        raise SqlError("the parser does not understand it") from None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Expr):
        raise SqlError("it must be one statement")
    return tree, set(_unknown_names(tokens, dialect.parser_class.FUNCTIONS, name))


def _bounded(base: type[Any], tokens: int) -> type[Any]:
    """A parser that does not guess, and has a limited number of steps."""
    left = _STEPS_PER_TOKEN * tokens + _SPARE_STEPS

    class Bounded(base):  # type: ignore[misc]
        """Counts its steps, and fails on statements that it would only keep as text."""

        def _advance(self, times: int = 1) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise SqlError("it is too complex to be read")
            super()._advance(times)

        def _warn_unsupported(self) -> None:
            raise SqlError("the parser does not know this kind of statement")

    return Bounded


def _check_quoted_names(tokens: list[Token]) -> None:
    """A quoted name may be a different function than the parser assumes."""
    before = None
    for token, following in pairwise(tokens):
        # SQLite accepts a string as a name: FROM 'fsdir'('.').
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        if quoted and following.token_type is TokenType.L_PAREN and before is not TokenType.INTO:
            raise SqlError("functions may not be called by a name in quotes")
        before = token.token_type


def _unknown_names(tokens: list[Token], functions: Container[str], dialect: str) -> Iterator[str]:
    """Names before a parenthesis that the parser knows but the database does not have built in."""
    built_in = BUILT_IN.get(dialect)
    for token, following in pairwise(tokens):
        name = token.text.lower()
        called = following.token_type is TokenType.L_PAREN and name.upper() in functions
        if called and built_in is not None and name not in built_in | HARMLESS_NAMES[dialect]:
            yield name


def _actions(node: exp.Expr) -> Iterator[str]:
    """The actions of a node itself. Raises: SqlError if they are not known."""
    name = type(node).__name__
    if name not in ACTIONS and name not in SYNTAX and not isinstance(node, exp.Func):
        raise SqlError(f"{name} is not known to be harmless")
    for member, value in node.args.items():
        if name in MEMBERS and value and member not in MEMBERS[name]:
            raise SqlError(f"{member.rstrip('_')} of {name} is not known to be harmless")
    if name in ACTIONS:
        yield ACTIONS[name]
    if name in ("Create", "Alter", "Drop") and node.args.get("kind") not in KINDS:
        raise SqlError(f"{name} is known for {', '.join(sorted(KINDS))} only")
    if isinstance(node, exp.OnConflict) and node.expressions:
        yield "update"


def _function(node: exp.Func, dialect: str) -> Iterator[str]:
    """The name of a function that is not known to be harmless."""
    schema = _schema(node)
    if not isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        if type(node).__name__ not in HARMLESS or schema:
            yield schema + node.sql_names()[0].lower()
    elif schema or node.name.lower() not in HARMLESS_NAMES[dialect]:
        yield schema + node.name.lower()


def _schema(node: exp.Func) -> str:
    """The schema in a function call, with its dot; empty if there is none."""
    parent = node.parent
    if isinstance(parent, exp.Dot) and parent.expression is node:
        return f"{parent.this.sql().lower()}."
    if isinstance(parent, exp.Table) and parent.this is node and parent.db:
        return f"{parent.db.lower()}."
    return ""
