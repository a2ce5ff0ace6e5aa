"""A tool's terminal: waits for the prompt, writes a line, reads the answer. No policy here."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from orchestrator.host.link.messages import malformed
from orchestrator.rules.tools.states import PromptState
from orchestrator.work.terminals.device import Agent, Device, Late
from orchestrator.work.terminals.framing import Framing, Output
from orchestrator.work.terminals.redacted_output import RedactedOutput
from orchestrator.work.terminals.spec import TerminalSpec
from sandbox_agent.decide.protocol import Message

# A prompt counts once nothing has followed it for this long and the program waits for input. Only
# that distinguishes it from a line of output that looks like a prompt. The time covers the moments
# between two writes of programs with several processes. It is measured inside the sandbox, so a
# sandbox without CPU time gets more of it.
SETTLE_MS = 5
# While the program shows a prompt but does not wait, it is checked less and less often.
SETTLE_MOST_MS = 100
# A single call of the agent waits at most this long.
_POLL_MS = 20_000


class Status(StrEnum):
    """What a terminal is doing."""

    SPAWNING = "spawning"
    READY = "ready"
    BUSY = "busy"
    TIMED_OUT = "timed_out"  # the answer to the last line is incomplete
    TERMINATED = "terminated"


class Wait(StrEnum):
    """The result of waiting for a prompt."""

    PROMPT = "prompt"
    TIMEOUT = "timeout"
    ENDED = "ended"


class Answer(NamedTuple):
    """The result of a line. The hash covers every raw byte except the session's secrets."""

    wait: Wait
    output: Output
    raw_bytes: int
    raw_hash: str


class Terminal(Device):
    """A tool on its terminal. Its driver calls one method at a time; hashes cover what is kept."""

    def __init__(
        self,
        terminal_id: str,
        spec: TerminalSpec,
        agent: Agent,
        output: RedactedOutput,
        flush: Callable[[], Awaitable[None]],
        show: Callable[[bytes], None] = lambda data: None,
    ) -> None:
        super().__init__(terminal_id, spec, agent, output, flush, show)
        # Output after the end of its interaction that has not been taken yet.
        self._late: list[Late] = []
        # The command whose prompt has not come yet.
        self._command: str | None = None
        # Whether the last wait for its prompt succeeded.
        self._idle = False
        self._framing = Framing(spec.ready, spec.output_max_bytes)
        self._began = 0
        # Where the last answer ended, and its output: later output is late.
        self._answered = 0
        self._answered_text = ""

    # Opening.

    async def start(self) -> Wait:
        """Starts the program and waits for its first prompt."""
        await self.begin()
        wait = await self._wait_prompt(self.spec.startup_timeout_seconds)
        await self._output.finish()
        self._settle(wait)
        return wait

    def printed(self) -> Output:
        """The program's output since its start, or since the last line."""
        return self._framing.output()

    # Lines.

    async def synchronise(self) -> bool:
        """Reads late output; returns whether the program is then at its prompt.

        It waits for the prompt as long as for any answer, but only if something is missing. A
        program that was at its prompt is still there if it waits for input, whatever it has
        printed.
        """
        try:
            page = await self.read(0)
            if not page.data and page.ended is None and page.waits and self._at_prompt:
                return True
            return await self._wait_prompt(self.spec.output_wait_ms / 1000) is Wait.PROMPT
        finally:
            self.note_late()

    async def send(self, command: str, text: str, files: Mapping[str, bytes] | None = None) -> None:
        """Writes a line. Earlier output will not be in its answer.

        `files` are copies that it names, by path; nothing in the sandbox can change them. Raises:
        PermissionDeniedError, BusyError, ConflictError, NotFoundError; nothing was written then.
        """
        params: Message = {"terminal_id": self.id, "command": command, "text": text}
        if files:
            params["files"] = {path: b64encode(data).decode() for path, data in files.items()}
        mark = (await self._agent.request("pty.send", params)).get("mark")
        if not isinstance(mark, int) or isinstance(mark, bool) or mark < self.position:
            raise malformed()
        while self.position < mark:
            if not (await self.read(0, limit=mark - self.position)).data:
                raise malformed()
        self.note_late()
        ended = self.spec.line_terminator.partition("\n")[0].rstrip("\r")
        self._framing.begin(text + ended, self.last_prompt.prompt if self.last_prompt else "")
        await self._output.finish()
        self._output.begin()
        self._began = self.position
        self._command, self._idle, self._answered_text = command, False, ""

    async def answer(self) -> Answer:
        """Waits for the prompt after a line; returns the output until then."""
        wait = await self._wait_prompt(self.spec.output_wait_ms / 1000)
        await self._output.finish()
        output = self._framing.output()
        self._answered_text = output.text
        self._settle(wait)
        return Answer(wait, output, self.position - self._began, self._output.digest)

    async def take_late(self) -> list[Late]:
        """Late output that has not been taken."""
        if self._late:
            await self._output.finish()
        late, self._late = self._late, []
        return late

    def note_late(self) -> None:
        """Treats the output since the last answer as late."""
        size = self.position - self._answered
        if size:
            text = self._framing.output().text
            self._late.append(Late(text.removeprefix(self._answered_text), size))
            self._answered_text = text
            self._settle(Wait.PROMPT if self._idle else Wait.TIMEOUT)

    def _settle(self, wait: Wait) -> None:
        """Treats output from now on as late."""
        self._answered = self.position
        if wait is Wait.PROMPT:
            self._framing.rest()
            self._answered_text = ""

    @property
    def _at_prompt(self) -> bool:
        """Whether it has shown its prompt; later output that was not asked for changes nothing."""
        return self._idle or self._framing.prompt is not None or self._framing.prompted

    def _settle_at_prompt(self) -> None:
        """Marks it as being at its prompt."""
        prompt = self._framing.prompt
        if prompt is not None or not self._idle:
            before = self.last_prompt.prompt if self.last_prompt else ""
            text = before if prompt is None else prompt
            state = self.spec.infer_state(self.last_prompt, text, self._command)
            self.last_prompt = PromptState(text, state)
        self._command, self._idle = None, True

    # Reading.

    async def _wait_prompt(self, seconds: float) -> Wait:
        """Waits until the program shows its prompt and waits for input; records both."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        settle_ms = SETTLE_MS
        while True:
            left_ms = int((deadline - loop.time()) * 1000)
            at_prompt = self._at_prompt
            page = await self.read(settle_ms if at_prompt else max(0, min(left_ms, _POLL_MS)))
            if page.data:
                settle_ms = SETTLE_MS
            elif page.ended is not None:
                return Wait.ENDED
            elif at_prompt and page.waits:
                self.line_bytes = page.line_bytes
                self._settle_at_prompt()
                return Wait.PROMPT
            elif at_prompt:
                settle_ms = min(2 * settle_ms, SETTLE_MOST_MS)
            if left_ms <= 0:
                return Wait.TIMEOUT

    def _hear(self, piece: bytes) -> None:
        self._framing.feed(piece)
