"""Lines that are SQL: what a statement does, held against what its command is declared for.

Which dialects there are and what they mean is in `sql`, which is imported when it is needed.
"""

from functools import partial
from typing import NamedTuple

from orchestrator.access.fair_queue import FairQueue, Turn
from orchestrator.task_scope import TaskScope
from orchestrator.threads import KeyedThreads
from orchestrator.tools.manifest import UNPARSED, Manifest, ToolCommand
from sandbox_agent.pty.sanitize import MAX_TEXT, control_characters

_AT_ONCE = 1
_AT_ONCE_PER_SESSION = 1
_MOST_WAITING = 32
# A line takes tens of milliseconds at worst; the first one has the parser imported.
_SECONDS = 30.0
# More than one, so that a line which takes for ever keeps its own session only.
_MOST_THREADS = 4


class SqlError(ValueError):
    """A text that is not one statement whose doings are known; the message says why."""


class Statement(NamedTuple):
    """What a statement does: `select` stands alone, as whatever else is done reads, too.

    `functions` are those that are not known to be harmless, in lower case, with their schema
    where it is given.
    """

    actions: frozenset[str]
    functions: frozenset[str]


class Reading(NamedTuple):
    """A line as the parser has read it; `problem` says why it could not."""

    statement: Statement | None
    problem: str | None = None


def read_line(manifest: Manifest, text: object) -> Reading | None:
    """A line as the statement that it is; None where the tool's lines are not parsed.

    It takes tens of milliseconds at worst.
    """
    if manifest.dialect is None:
        return None
    if not isinstance(text, str) or len(text) > MAX_TEXT or control_characters(text) is not None:
        return Reading(None, "the text can't be sent at all")
    from orchestrator.tools.sql import read_statement

    if ";" not in manifest.line_terminator:
        text = text.removesuffix(";")
    try:
        return Reading(read_statement(text, manifest.dialect))
    except SqlError as error:
        return Reading(None, str(error))


def refusal(reading: Reading, command: ToolCommand) -> str | None:
    """Why a line is not what a command is declared for; None where it is."""
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


class Reader:
    """Reads lines off the loop, one at a time. A session waits for itself before others do."""

    def __init__(self) -> None:
        self._turns = FairQueue(_AT_ONCE, _AT_ONCE_PER_SESSION, _MOST_WAITING)
        self._threads = KeyedThreads("lines that are parsed", _MOST_THREADS)
        self._tasks = TaskScope("the reading of a line")

    async def read(self, session_key: str, manifest: Manifest, text: str) -> Reading | None:
        """What `read_line` returns; a line that takes too long is one that can't be read.

        Raises: RateLimitedError when too many lines wait.
        """
        if manifest.dialect is None:
            return None
        turn = await self._turns.take(session_key)
        # A caller that leaves takes no thread along: its session's next line waits for this one.
        return await self._tasks.shield(self._read(turn, session_key, manifest, text))

    async def close(self) -> None:
        """Nobody waits for a line any more."""
        await self._tasks.close()

    async def _read(
        self, turn: Turn, session_key: str, manifest: Manifest, text: str
    ) -> Reading | None:
        with turn:
            read = partial(read_line, manifest, text)
            try:
                return await self._threads.call(session_key, read, _SECONDS)
            except TimeoutError:
                return Reading(None, "it could not be read in time")
