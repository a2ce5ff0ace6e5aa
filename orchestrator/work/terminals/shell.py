"""A person's shell: bytes both ways; what is typed is recorded before the program gets it."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.rules.tools.states import PromptState
from orchestrator.work.terminals.device import Device, Late
from orchestrator.work.terminals.framing import PromptPattern
from orchestrator.work.terminals.pages import Page
from orchestrator.work.terminals.redacted_output import RedactedOutput
from orchestrator.work.terminals.spec import Needs, TerminalSpec
from orchestrator.work.terminals.viewers import Size

NAME = "shell"
TERMINAL_TYPE = "xterm-256color"
# Without the workspace's start-up files, which could change what is typed. An image may have no
# bash.
ARGV = (
    *("/bin/sh", "-c"),
    "command -v bash >/dev/null && exec bash --noprofile --norc; exec sh",
)
# The same, in a directory.
_IN_DIRECTORY = f'cd -- "$1" || exit; {ARGV[-1]}'
# One request to the agent: it answers as soon as there is output.
POLL_MS = 600_000
# How long a lost agent may take to come back before its shell is given up.
_RECONNECT_SECONDS = 30.0
# The end of reading, once the program has ended.
_SETTLE_SECONDS = 5.0
# A terminal that nobody reads, because its control plane was killed, ends after this time.
_ABANDONED_SECONDS = 600


class ShellLimits(NamedTuple):
    """Limits of shells."""

    # Open shells of one session.
    shells: int = 4
    # The time without anything typed, or shown to somebody.
    idle_seconds: float = 1800.0
    # The time from its start to its end.
    lifetime_seconds: int = 86_400


SHELL_LIMITS = ShellLimits()


class _NoPrompt(PromptPattern):
    """Matches nothing: a shell's prompts are for its person."""

    def matches(self, text: str) -> bool:
        return False


def shell_spec(
    size: Size, env: Mapping[str, str], limits: ShellLimits, directory: str = ""
) -> TerminalSpec:
    """The terminal of a shell with that size, and with the session's own variables.

    `directory` is where it begins; empty: in the workspace.
    """

    def infer(_before: PromptState | None, _prompt: str, _command: str | None) -> str:
        return ""

    def no_problem(_result: Mapping[str, Any]) -> str | None:
        return None

    return TerminalSpec(
        tool=NAME,
        manifest_sha256=None,
        startup_command="bash --noprofile --norc",
        argv=(*ARGV[:-1], _IN_DIRECTORY, "sh", directory) if directory else ARGV,
        env={**env, "TERM": TERMINAL_TYPE},
        ready=_NoPrompt(),
        line_terminator="",
        sanitize=(),
        commands=None,
        output_max_bytes=0,
        output_wait_ms=0,
        startup_timeout_seconds=0,
        idle_timeout_seconds=_ABANDONED_SECONDS,
        session_timeout_seconds=limits.lifetime_seconds,
        max_interactions=0,
        infer_state=infer,
        result_problem=no_problem,
        rows=size.rows,
        columns=size.columns,
        needs=Needs(),
        capture=False,
        recorded=True,
    )


class Shell(Device):
    """A shell on its terminal. `follow` reads it; others may type and resize meanwhile."""

    def __init__(
        self,
        terminal_id: str,
        spec: TerminalSpec,
        link: AgentLink,
        output: RedactedOutput,
        typed: RedactedOutput,
        flush: Callable[[], Awaitable[None]],
        show: Callable[[bytes], None],
        watched: Callable[[], bool],
        frozen: Callable[[], bool],
    ) -> None:
        """`typed` receives what is typed, before the program does.

        `watched`: somebody sees the output; `frozen`: the agent can't answer at present.
        """
        super().__init__(terminal_id, spec, link, output, flush, show)
        self._link = link
        self._typed = typed
        self._watched = watched
        self._frozen = frozen
        self._typing = asyncio.Lock()
        self._reading: asyncio.Task[Any] | None = None
        # Whether `follow` has returned.
        self._followed = asyncio.Event()
        self._idle: asyncio.Timeout | None = None
        self._idle_seconds = 0.0

    # Reading.

    async def follow(self, idle_seconds: float) -> None:
        """Reads the output until the shell has ended.

        Raises: TimeoutError if for so long nothing was typed, and nothing shown to anybody; the
        errors of `read`.
        """
        self._reading, self._idle_seconds = asyncio.current_task(), idle_seconds
        self._followed.clear()
        try:
            async with asyncio.timeout(idle_seconds) as self._idle:
                while (page := await self._next()).ended is None:
                    if page.data and self._watched():
                        self.use()
        finally:
            self._reading = self._idle = None
            self._followed.set()

    async def _next(self) -> Page:
        """The next output, also of an agent that was away. Raises: the errors of `read`."""
        while True:
            try:
                return await self.read(self._patience_ms())
            except SandboxUnavailableError:
                if self._link.connected and not self._frozen():
                    raise
                await self._link.wait_connected(_RECONNECT_SECONDS)

    def _patience_ms(self) -> int:
        """How long the agent may wait for output before it answers."""
        return POLL_MS

    def use(self) -> None:
        """Somebody uses it: it is not idle."""
        if self._idle is not None and not self._idle.expired():
            self._idle.reschedule(asyncio.get_running_loop().time() + self._idle_seconds)

    async def stop_reading(self) -> None:
        """Waits until `follow` has read the end, but not long: a lost agent reports none.

        The task that follows may itself wait for the caller, once it has read the end.
        """
        reading = self._reading
        if reading is None or reading is asyncio.current_task():
            return
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._followed.wait()
        except TimeoutError:
            reading.cancel()
            await self._followed.wait()

    async def take_late(self) -> list[Late]:
        """Writes what was read and typed to the evidence; a shell has no late output."""
        await self._typed.finish()
        return await super().take_late()

    # Typing.

    async def write(self, data: bytes) -> None:
        """Types the bytes, one caller after the other; returns when the kernel has them.

        Raises: BusyError if the program does not read, ConflictError if it has ended;
        EvidenceError, and then nothing was typed.
        """
        async with self._typing:
            self.use()
            await self._typed.feed(data)
            await self._flush()
            params = {"terminal_id": self.id, "data": b64encode(data).decode()}
            await self._agent.request("pty.write", params)

    async def resize(self, size: Size) -> None:
        """Gives the terminal another size. Raises: ConflictError if it has ended."""
        self.use()
        params = {"terminal_id": self.id, "rows": size.rows, "cols": size.columns}
        await self._agent.request("pty.resize", params)
