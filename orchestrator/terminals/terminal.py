"""One terminal: its program's prompt awaited, a line written, the answer read. No policy here."""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from orchestrator.errors import NotFoundError, PaddockError, SandboxUnavailableError
from orchestrator.terminals.framing import Framing, Output
from orchestrator.terminals.spec import MOST_LINE_BYTES, Shown, TerminalSpec
from sandbox_agent.protocol import Message
from sandbox_agent.redaction import RedactedStream, Redactor

# A prompt counts once nothing has followed it for this long, and the program is not running: it
# waits for input then, or for something else in the middle of a line that looks like its prompt.
# The time is taken inside the sandbox, so a sandbox that has no CPU is given more of it. That
# the program rests matters more than the time, which only covers the moments between two
# writes of programs that are several processes.
SETTLE_MS = 5
# Something in the foreground that never rests is not waited for any longer than this.
SETTLE_MOST_MS = 100
# One piece of output: so much is cleaned of control sequences without a break.
_READ_BYTES = 32 * 1024
# What an agent holds of an ended program is less than this many pieces.
_MOST_LAST_READS = 64
# A single call of the agent waits at most this long.
_POLL_MS = 20_000
_GRACE_SECONDS = 20.0


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


class Exit(NamedTuple):
    """How a program ended."""

    exit_code: int | None
    signal: str | None
    reason: str | None


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


class _Page(NamedTuple):
    data: bytes
    rests: bool
    ended: Exit | None


class Terminal:
    """One program on its terminal. Whoever drives it does one thing at a time.

    `on_raw` gets every byte that the program says; hashes are of what `redactor` leaves of them,
    which is what is kept. Raises: SandboxUnavailableError from
    whatever asks the agent.
    """

    def __init__(
        self,
        terminal_id: str,
        spec: TerminalSpec,
        agent: Agent,
        on_raw: Callable[[bytes], None],
        redactor: Callable[[], Redactor] = lambda: Redactor(),
    ) -> None:
        self.id = terminal_id
        self.spec = spec
        self.shown: Shown | None = None
        self.exit: Exit | None = None
        # What came after its interaction was over, and is in no answer.
        self.late_bytes = 0
        # The command whose prompt has not come yet.
        self._command: str | None = None
        self._agent = agent
        self._on_raw = on_raw
        self._framing = Framing(spec.ready, spec.output_max_bytes)
        # How many bytes of what it said are read.
        self.position = 0
        self._kept = RedactedStream(redactor)
        self._hash = hashlib.sha256()
        self._began = 0

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
            "max_line_bytes": MOST_LINE_BYTES,
            "lifetime_ms": spec.session_timeout_seconds * 1000,
            "idle_ms": spec.idle_timeout_seconds * 1000,
        }
        await self._agent.request("pty.open", params)
        wait = await self._wait_prompt(spec.startup_timeout_seconds)
        if wait is Wait.PROMPT:
            self._show()
        return wait

    def said(self) -> Output:
        """What the program has said since its start, or since the last line."""
        return self._framing.output()

    # Lines

    async def synchronise(self) -> bool:
        """Reads what came late; whether the program is at its prompt after that.

        It waits for the prompt as long as for any answer, but only if something is missing.
        """
        before = self.position
        try:
            page = await self._read(0)
            if not page.data and page.ended is None and self._framing.prompt is not None:
                return True
            if await self._wait_prompt(self.spec.output_wait_ms / 1000) is not Wait.PROMPT:
                return False
            self._show()
            return True
        finally:
            self.late_bytes += self.position - before

    async def send(self, command: str, text: str) -> None:
        """Writes a line. What came before it will not be in its answer.

        Raises: PermissionDeniedError, BusyError, ConflictError, NotFoundError: then nothing
        was written.
        """
        params = {"terminal_id": self.id, "command": command, "text": text}
        mark = (await self._agent.request("pty.send", params)).get("mark")
        if not isinstance(mark, int) or isinstance(mark, bool) or mark < self.position:
            raise _garbage()
        self.late_bytes += mark - self.position
        while self.position < mark:
            if not (await self._read(0, limit=mark - self.position)).data:
                raise _garbage()
        self._framing.begin(text + self.spec.line_terminator.partition("\n")[0].rstrip("\r"))
        self._kept.finish()
        self._hash, self._began = hashlib.sha256(), self.position
        self._command = command

    async def answer(self) -> Answer:
        """Waits for the prompt after a line; what was said until then."""
        wait = await self._wait_prompt(self.spec.output_wait_ms / 1000)
        output = self._framing.output()
        if wait is Wait.PROMPT:
            self._show()
        self._hash.update(self._kept.finish())
        digest = f"sha256:{self._hash.hexdigest()}"
        return Answer(wait, output, self.position - self._began, digest)

    def _show(self) -> None:
        prompt = self._framing.prompt or ""
        self.shown = Shown(prompt, self.spec.infer_state(self.shown, prompt, self._command))
        self._command = None

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
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        quiet_ms = 0
        while True:
            left_ms = int((deadline - loop.time()) * 1000)
            at_prompt = self._framing.prompt is not None
            if left_ms <= 0 and not at_prompt:
                return Wait.TIMEOUT
            page = await self._read(SETTLE_MS if at_prompt else min(left_ms, _POLL_MS))
            if page.data:
                quiet_ms = 0
                if left_ms <= 0:
                    return Wait.TIMEOUT
            elif page.ended is not None:
                return Wait.ENDED
            elif at_prompt:
                quiet_ms += SETTLE_MS
                if page.rests or quiet_ms >= SETTLE_MOST_MS:
                    return Wait.PROMPT

    async def _read(self, wait_ms: int, limit: int = _READ_BYTES) -> _Page:
        """The next piece of what the program said; empty when there is none in time."""
        params = {
            "terminal_id": self.id,
            "after": self.position,
            "limit": min(limit, _READ_BYTES),
            "wait_ms": wait_ms,
        }
        page = _page(
            await self._agent.request("pty.read", params, wait_ms / 1000 + _GRACE_SECONDS),
            self.position,
        )
        if page.data:
            self.position += len(page.data)
            self._on_raw(page.data)
            self._hash.update(self._kept.feed(page.data))
            self._framing.feed(page.data)
        if page.ended is not None:
            self.exit = page.ended
        return page


def parse_exit(value: Any) -> Exit:
    """How a program ended, as the agent reports it. Raises: SandboxUnavailableError."""
    if not isinstance(value, dict):
        raise _garbage()
    exit_code, signal, reason = (value.get(name) for name in ("exit_code", "signal", "reason"))
    texts = all(
        text is None or (isinstance(text, str) and len(text) < 128) for text in (signal, reason)
    )
    if not isinstance(exit_code, int) or isinstance(exit_code, bool) or not texts:
        raise _garbage()
    return Exit(exit_code, signal, reason)


def _page(answer: Message, position: int) -> _Page:
    try:
        data = base64.b64decode(answer["data"], validate=True)
        sound = len(data) <= _READ_BYTES and answer["next"] == position + len(data)
        ended = answer["ended"]
    except (KeyError, TypeError, ValueError):
        raise _garbage() from None
    if not sound:
        raise _garbage()
    return _Page(data, answer.get("rests") is True, None if ended is None else parse_exit(ended))


def _garbage() -> PaddockError:
    return SandboxUnavailableError("the sandbox agent answered with garbage")
