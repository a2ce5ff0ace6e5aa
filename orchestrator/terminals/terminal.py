"""One terminal: its program's prompt awaited, a line written, the answer read. No policy here."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple, Protocol

from orchestrator.errors import NotFoundError
from orchestrator.observe.metered import Metered
from orchestrator.terminals.framing import Framing, Output
from orchestrator.terminals.pages import READ_BYTES, Exit, Page, garbage, parse_page
from orchestrator.terminals.said import Said
from orchestrator.terminals.spec import Shown, TerminalSpec
from sandbox_agent.protocol import Message
from sandbox_agent.pty.sanitize import MAX_LINE_BYTES

# A prompt counts once nothing has followed it for this long, and the program waits for input:
# only that tells it from a line of output that looks like one. The time covers the moments
# between two writes of programs that are several processes; it is taken inside the sandbox, so
# a sandbox that has no CPU is given more of it.
SETTLE_MS = 5
# While the program shows a prompt and does not wait, it is looked at less and less often.
SETTLE_MOST_MS = 100
# What an agent holds of an ended program is less than this many pieces.
_MOST_LAST_READS = 64
# A single call of the agent waits at most this long.
_POLL_MS = 20_000
_GRACE_SECONDS = 20.0
# So much of what a program said is taken up before whatever else the loop has to do.
_PIECE_BYTES = 4 * 1024


class Status(StrEnum):
    """What a terminal is doing."""

    SPAWNING = "spawning"
    READY = "ready"
    BUSY = "busy"
    TIMED_OUT = "timed_out"  # the answer to the last line is not complete
    TERMINATED = "terminated"


class Wait(StrEnum):
    """What waiting for a prompt came to."""

    PROMPT = "prompt"
    TIMEOUT = "timeout"
    ENDED = "ended"


class Answer(NamedTuple):
    """What a line came to. The hash is of every raw byte, but for the session's secrets."""

    wait: Wait
    output: Output
    raw_bytes: int
    raw_hash: str


class Agent(Protocol):
    """Who has the terminal's device."""

    def request(self, method: str, params: Message, timeout: float = ...) -> Awaitable[Message]:
        """Asks it."""

    def spend(self, seconds: float) -> float:
        """So much time was used for what it said: it is heard later for that."""


class Late(NamedTuple):
    """What a program said that is no answer to any line."""

    text: str
    raw_bytes: int


class Terminal:
    """One program on its terminal. Whoever drives it does one thing at a time.

    `said` gets every byte that the program says, and no more is read before `flush` has
    returned; hashes are of what is kept of them. Raises: SandboxUnavailableError from whatever
    asks the agent; what `said` and `flush` do.
    """

    def __init__(
        self,
        terminal_id: str,
        spec: TerminalSpec,
        agent: Agent,
        said: Said,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self.id = terminal_id
        self.spec = spec
        self.shown: Shown | None = None
        self.exit: Exit | None = None
        # What may be sent at the prompt that it shows, in bytes.
        self.line_bytes = MAX_LINE_BYTES
        # What came after its interaction was over, and nobody has taken yet.
        self._late: list[Late] = []
        # The command whose prompt has not come yet.
        self._command: str | None = None
        # Whether its prompt is the last thing that it was waited for.
        self._idle = False
        self._agent = agent
        self._said = said
        self._flush = flush
        self._framing = Framing(spec.ready, spec.output_max_bytes)
        # How many bytes of what it said are read.
        self.position = 0
        self._began = 0
        # Where the last answer ended, and what was in it: the rest of it, if any, is late.
        self._answered = 0
        self._told = ""

    # Opening

    async def start(self) -> Wait:
        """Starts the program and waits for its first prompt."""
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
            "commands": list(spec.commands),
            "max_line_bytes": MAX_LINE_BYTES,
            "lifetime_ms": spec.session_timeout_seconds * 1000,
            "idle_ms": spec.idle_timeout_seconds * 1000,
        }
        await self._agent.request("pty.open", params)
        wait = await self._wait_prompt(spec.startup_timeout_seconds)
        await self._said.finish()
        self._settle(wait)
        return wait

    def said(self) -> Output:
        """What the program has said since its start, or since the last line."""
        return self._framing.output()

    # Lines

    async def synchronise(self) -> bool:
        """Reads what came late; whether the program is at its prompt after that.

        It waits for the prompt as long as for any answer, but only if something is missing. One
        that was at its prompt is there still when it waits for input, whatever it has said.
        """
        try:
            page = await self._read(0)
            if not page.data and page.ended is None and page.waits and self._at_prompt:
                return True
            return await self._wait_prompt(self.spec.output_wait_ms / 1000) is Wait.PROMPT
        finally:
            self.note_late()

    async def send(self, command: str, text: str, files: Mapping[str, bytes] | None = None) -> None:
        """Writes a line. What came before it will not be in its answer.

        `files` are copies that it names, by path; nothing in the sandbox can change them.
        Raises: PermissionDeniedError, BusyError, ConflictError, NotFoundError: then nothing
        was written.
        """
        params: Message = {"terminal_id": self.id, "command": command, "text": text}
        if files:
            params["files"] = {path: b64encode(data).decode() for path, data in files.items()}
        mark = (await self._agent.request("pty.send", params)).get("mark")
        if not isinstance(mark, int) or isinstance(mark, bool) or mark < self.position:
            raise garbage()
        while self.position < mark:
            if not (await self._read(0, limit=mark - self.position)).data:
                raise garbage()
        self.note_late()
        ended = self.spec.line_terminator.partition("\n")[0].rstrip("\r")
        self._framing.begin(text + ended, self.shown.prompt if self.shown else "")
        await self._said.finish()
        self._said.begin()
        self._began = self.position
        self._command, self._idle, self._told = command, False, ""

    async def answer(self) -> Answer:
        """Waits for the prompt after a line; what was said until then."""
        wait = await self._wait_prompt(self.spec.output_wait_ms / 1000)
        await self._said.finish()
        output = self._framing.output()
        self._told = output.text
        self._settle(wait)
        return Answer(wait, output, self.position - self._began, self._said.digest)

    async def take_late(self) -> list[Late]:
        """What came late and has not been taken."""
        if self._late:
            await self._said.finish()
        late, self._late = self._late, []
        return late

    def note_late(self) -> None:
        """What was said since the last answer is late."""
        size = self.position - self._answered
        if size:
            text = self._framing.output().text
            self._late.append(Late(text.removeprefix(self._told), size))
            self._told = text
            self._settle(Wait.PROMPT if self._idle else Wait.TIMEOUT)

    def _settle(self, wait: Wait) -> None:
        """What is said from now on is late."""
        self._answered = self.position
        if wait is Wait.PROMPT:
            self._framing.rest()
            self._told = ""

    @property
    def _at_prompt(self) -> bool:
        """Whether its prompt was shown: what follows that of its own accord changes nothing."""
        return self._idle or self._framing.prompt is not None or self._framing.prompted

    def _show(self) -> None:
        """It is at its prompt."""
        prompt = self._framing.prompt
        if prompt is not None or not self._idle:
            before = self.shown.prompt if self.shown else ""
            shown = before if prompt is None else prompt
            self.shown = Shown(shown, self.spec.infer_state(self.shown, shown, self._command))
        self._command, self._idle = None, True

    # Ending

    async def end(self, reason: str) -> None:
        """Tells the program to end; it has when the agent says so."""
        params = {"terminal_id": self.id, "reason": reason}
        await self._agent.request("pty.close", params)

    async def read_rest(self) -> None:
        """Reads what an ended program has left, as far as it is still there."""
        with suppress(NotFoundError):
            for _ in range(_MOST_LAST_READS):
                page = await self._read(0)
                if page.ended is not None or not page.data:
                    return

    # Reading

    async def _wait_prompt(self, seconds: float) -> Wait:
        """Waits until the program shows its prompt and waits for input; takes note of both."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        settle_ms = SETTLE_MS
        while True:
            left_ms = int((deadline - loop.time()) * 1000)
            at_prompt = self._at_prompt
            page = await self._read(settle_ms if at_prompt else max(0, min(left_ms, _POLL_MS)))
            if page.data:
                settle_ms = SETTLE_MS
            elif page.ended is not None:
                return Wait.ENDED
            elif at_prompt and page.waits:
                self.line_bytes = page.line_bytes
                self._show()
                return Wait.PROMPT
            elif at_prompt:
                settle_ms = min(2 * settle_ms, SETTLE_MOST_MS)
            if left_ms <= 0:
                return Wait.TIMEOUT

    async def _read(self, wait_ms: int, limit: int = READ_BYTES) -> Page:
        """The next piece of what the program said; empty when there is none in time."""
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
            self._framing.feed(piece)
            await self._said.feed(piece)
            await asyncio.sleep(0)
        await self._flush()
