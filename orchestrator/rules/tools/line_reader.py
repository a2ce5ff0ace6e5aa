"""Reads the statements in lines of SQL, off the event loop.

`sql`, which is imported when it is needed, defines the dialects and their meaning.
"""

from functools import partial

from orchestrator.ground.fair_queue import FairQueue, Slot
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import KeyedThreads
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.statements import Reading, SqlError
from sandbox_agent.decide.sanitize import MAX_TEXT, control_characters

_AT_ONCE = 1
_AT_ONCE_PER_SESSION = 1
_MOST_WAITING = 32
# A line takes tens of milliseconds at worst; the first one also imports the parser.
_SECONDS = 30.0
# More than one, so that a line that takes forever delays its own session only.
_MOST_THREADS = 4


def read_line(manifest: Manifest, text: object) -> Reading | None:
    """The statement in a line; None if the tool's lines are not parsed.

    Takes tens of milliseconds at worst.
    """
    if manifest.dialect is None:
        return None
    if not isinstance(text, str) or len(text) > MAX_TEXT or control_characters(text) is not None:
        return Reading(None, "the text can't be sent at all")
    from orchestrator.rules.tools.sql import read_statement

    if ";" not in manifest.line_terminator:
        text = text.removesuffix(";")
    try:
        return Reading(read_statement(text, manifest.dialect))
    except SqlError as error:
        return Reading(None, str(error))


class LineReader:
    """Reads lines off the event loop, one at a time for each session."""

    def __init__(self) -> None:
        self._queue = FairQueue(_AT_ONCE, _AT_ONCE_PER_SESSION, _MOST_WAITING)
        self._threads = KeyedThreads("lines that are parsed", _MOST_THREADS)
        self._tasks = TaskScope("the reading of a line")

    async def read(self, session_key: str, manifest: Manifest, text: str) -> Reading | None:
        """Returns the result of `read_line`, or that a line could not be read in time.

        Raises: RateLimitedError if too many lines wait.
        """
        if manifest.dialect is None:
            return None
        slot = await self._queue.take(session_key)
        # A cancelled caller does not cancel the reading: its session's next line waits for it.
        return await self._tasks.shield(self._read(slot, session_key, manifest, text))

    async def close(self) -> None:
        """Stops all waiting for lines."""
        await self._tasks.close()

    async def _read(
        self, slot: Slot, session_key: str, manifest: Manifest, text: str
    ) -> Reading | None:
        with slot:
            read = partial(read_line, manifest, text)
            try:
                return await self._threads.call(session_key, read, _SECONDS)
            except TimeoutError:
                return Reading(None, "it could not be read in time")
