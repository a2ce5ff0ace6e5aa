"""A program on its terminal: read in order, kept, shown and ended."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from orchestrator.ground.errors import NotFoundError
from orchestrator.ground.fair_share import Metered
from orchestrator.rules.tools.states import PromptState
from orchestrator.work.terminals.pages import READ_BYTES, Exit, Page, parse_page
from orchestrator.work.terminals.redacted_output import RedactedOutput
from orchestrator.work.terminals.spec import TerminalSpec
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.sanitize import MAX_LINE_BYTES

# An agent holds fewer pieces than this of an ended program.
_MOST_LAST_READS = 64
_GRACE_SECONDS = 20.0
# The output handled before the event loop does other work.
_PIECE_BYTES = 4 * 1024


class Agent(Protocol):
    """The agent that holds the terminal's device."""

    def request(self, method: str, params: Message, timeout: float = ...) -> Awaitable[Message]:
        """Sends a request."""

    def spend(self, seconds: float) -> float:
        """Charges time for its output; it is read later accordingly."""


class Late(NamedTuple):
    """Output of a program that answers no line."""

    text: str
    raw_bytes: int


class Device:
    """A program on its terminal, which has one reader at a time.

    `output` receives every byte of the output, `show` gets it as it came. No more is read before
    `flush` has returned. Raises: SandboxUnavailableError from everything that asks the agent; the
    errors of `output` and `flush`.
    """

    def __init__(
        self,
        terminal_id: str,
        spec: TerminalSpec,
        agent: Agent,
        output: RedactedOutput,
        flush: Callable[[], Awaitable[None]],
        show: Callable[[bytes], None] = lambda data: None,
    ) -> None:
        self.id = terminal_id
        self.spec = spec
        # The last prompt, if the program has prompts.
        self.last_prompt: PromptState | None = None
        self.exit: Exit | None = None
        # The longest line that may be sent at the present prompt, in bytes.
        self.line_bytes = MAX_LINE_BYTES
        # How many bytes of its output were read.
        self.position = 0
        self._agent = agent
        self._output = output
        self._flush = flush
        self._show = show

    async def begin(self) -> None:
        """Has the agent start the program."""
        spec = self.spec
        params = {
            "terminal_id": self.id,
            "argv": list(spec.argv),
            "env": dict(spec.env),
            "needs": spec.needs._asdict(),
            "rows": spec.rows,
            "cols": spec.columns,
            "terminator": spec.line_terminator,
            "sanitize": list(spec.sanitize),
            "commands": None if spec.commands is None else list(spec.commands),
            "max_line_bytes": MAX_LINE_BYTES,
            "lifetime_ms": spec.session_timeout_seconds * 1000,
            "idle_ms": spec.idle_timeout_seconds * 1000,
            "kept": spec.kept_cwd is not None and (spec.kept_bash or "sh"),
            "cwd": spec.kept_cwd or "",
        }
        await self._agent.request("pty.open", params)

    async def read(self, wait_ms: int, limit: int = READ_BYTES) -> Page:
        """The next piece of the program's output; empty if there is none in time."""
        params = {
            "terminal_id": self.id,
            "after": self.position,
            "limit": min(limit, READ_BYTES),
            "wait_ms": wait_ms,
        }
        page = parse_page(
            await self._agent.request("pty.read", params, wait_ms / 1000 + _GRACE_SECONDS),
            self.position,
        )
        if page.data:
            await Metered(self._take_up(page.data), self._agent.spend)
        if page.ended is not None:
            self.exit = page.ended
        return page

    async def _take_up(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self.position += len(piece)
            self._hear(piece)
            await self._output.feed(piece)
            await asyncio.sleep(0)
        # It is with the evidence now, whose disk no viewer has to wait for.
        self._show(data)
        await self._flush()

    def _hear(self, piece: bytes) -> None:
        """Splits a piece of the output into lines, where that matters."""

    def note_late(self) -> None:
        """Treats the output since the last answer as late, where there are answers."""

    async def take_late(self) -> list[Late]:
        """Late output that has not been taken; all output so far is written to `output`."""
        await self._output.finish()
        await self._flush()
        return []

    async def end(self, reason: str) -> None:
        """Tells the program to end; it has ended when the agent says so."""
        params = {"terminal_id": self.id, "reason": reason}
        await self._agent.request("pty.close", params)

    async def stop_reading(self) -> None:
        """Waits until nothing reads the program's output any more."""

    async def read_rest(self) -> None:
        """Reads what an ended program has left, as far as available."""
        with suppress(NotFoundError):
            for _ in range(_MOST_LAST_READS):
                page = await self.read(0)
                if page.ended is not None or not page.data:
                    return
