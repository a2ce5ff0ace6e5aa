"""What a statement of SQL does, compared with what its command declares. Pure."""

from typing import NamedTuple

from orchestrator.rules.tools.manifest import UNPARSED, ToolCommand


class SqlError(ValueError):
    """A text that is not one statement with known effects; the message says why."""


class Statement(NamedTuple):
    """The effects of a statement. `select` appears alone, because everything else reads, too.

    `functions` are those that are not known to be harmless, in lower case and with their schema if
    it is given.
    """

    actions: frozenset[str]
    functions: frozenset[str]


class Reading(NamedTuple):
    """The parser's result for a line; `problem` says why it could not read it."""

    statement: Statement | None
    problem: str | None = None


def refusal(reading: Reading, command: ToolCommand) -> str | None:
    """Why a line is not what a command declares; None if it is."""
    if command.statements == (UNPARSED,):
        return None
    if reading.statement is None:
        return f"the statement is refused: {reading.problem}"
    others = sorted(reading.statement.actions.difference(command.statements))
    if others:
        declared = ", ".join(command.statements)
        return f"the statement does {', '.join(others)}; {command.name} is for {declared}"
    unknown = sorted(reading.statement.functions.difference(command.functions))
    if unknown:
        called = ", ".join(unknown)[:256]
        return f"the statement calls {called}: not among the known functions that only compute"
    return None
