"""A shell that runs one command after the other and keeps its state between them."""

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.host.link.agent_link import AgentLink
from orchestrator.work.shells.run_output import RunOutput
from orchestrator.work.terminals.pages import READ_BYTES, Page, RunState
from orchestrator.work.terminals.redacted_output import RedactedOutput
from orchestrator.work.terminals.shell import POLL_MS, Shell, ShellLimits, shell_spec
from orchestrator.work.terminals.spec import TerminalSpec
from orchestrator.work.terminals.viewers import Size

# The exit status of a shell whose image has no bash.
NO_BASH = 127
# Wide enough for most lines; programs that ask get it.
_SIZE = Size(200, 50)
_PREFIX = "shell:"
# Interactive, so that an interrupt ends the command and leaves the shell. It reads no start-up
# files, because the workspace could change with them what commands mean.
_ARGV = (
    *("/bin/sh", "-c"),
    f"command -v bash >/dev/null || exit {NO_BASH}; exec bash --noprofile --norc --noediting -i",
)
# The agent gives it an output once it has started, because some print a greeting.
_SH_ARGV = ("/bin/sh", "-c", "exec /bin/sh -i >/dev/null")
# How often the agent looks whether a program of the foreground waits for input: soon, then rarely.
_FIRST_LOOK_MS, _LAST_LOOK_MS = 50, 1000


class ShellSettings(NamedTuple):
    """What a kept shell was created with: its name, directory and additional variables."""

    name: str
    cwd: str
    env: Mapping[str, str]


def record_name(name: str) -> str:
    """The `tool` of the terminal of the shell with that name."""
    return _PREFIX + name


def kept_spec(
    settings: ShellSettings, env: Mapping[str, str], limits: ShellLimits, *, bash: bool = True
) -> TerminalSpec:
    """The terminal of a kept shell; `env` are the session's own variables."""
    return shell_spec(_SIZE, {**env, **settings.env}, limits)._replace(
        tool=record_name(settings.name),
        startup_command="bash --noprofile --norc --noediting -i" if bash else "sh -i",
        argv=_ARGV if bash else _SH_ARGV,
        env={**env, "TERM": "dumb", **settings.env},
        kept_cwd=settings.cwd,
        kept_bash=bash,
    )


class Why(enum.StrEnum):
    """Why an answer came back."""

    FINISHED = enum.auto()
    SYNTAX_ERROR = enum.auto()
    MATCHED = enum.auto()
    WAITING = enum.auto()
    TIMED_OUT = enum.auto()
    ENDED = enum.auto()


@dataclass(eq=False)
class ShellRun:
    """One command.

    `sent` is set when the agent has it, `state` once it has ended, `recorded` when that is on
    record.
    """

    number: int
    command: str
    started: float = field(default_factory=time.monotonic)
    state: RunState | None = None
    output_bytes: int = 0
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    recorded: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def duration_ms(self) -> int:
        """The time since its start."""
        return int((time.monotonic() - self.started) * 1000)


class KeptShell(Shell):
    """A kept shell; `follow` reads it. One caller at a time waits for a command."""

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
        printed: RunOutput,
    ) -> None:
        """`printed` gets the output as `output` leaves it: without secrets."""
        super().__init__(
            *(terminal_id, spec, link, output, typed, flush, show),
            watched=watched,
            frozen=frozen,
        )
        self.name = spec.tool.removeprefix(_PREFIX)
        self.printed = printed
        # The command that runs, and what is known of the latest one.
        self.run: ShellRun | None = ShellRun(0, "")
        self.cwd = spec.kept_cwd or ""
        self.settings: ShellSettings | None = None
        # Held by the one caller that waits for a command.
        self.attended = asyncio.Lock()
        self._waits = False
        # Grows with what the shell gets, so that a page from before says nothing of afterwards.
        self._given = 0
        self._over = False
        self._look_ms = _FIRST_LOOK_MS
        self._changed = asyncio.Event()

    # Commands.

    async def start(self, run: ShellRun) -> None:
        """Has the agent run a command. Raises: BusyError, ConflictError, and as requests do."""
        self.run = run
        self._expect_news()
        params = {"terminal_id": self.id, "number": run.number, "text": run.command}
        try:
            await self._agent.request("pty.run", params)
        except BaseException:
            self.run = None
            raise
        finally:
            run.sent.set()

    async def interrupt(self, run: ShellRun, *, kill: bool = False) -> None:
        """Interrupts a command, or kills its foreground unless that is the shell itself.

        Raises: ConflictError if it has ended.
        """
        await run.sent.wait()
        params = {"terminal_id": self.id, "number": run.number, "kill": kill}
        await self._agent.request("pty.interrupt", params)

    async def record_command(self, text: str) -> None:
        """Records a command as typed. Raises: EvidenceError."""
        async with self._typing:
            await self._typed.feed(text.encode() + b"\n")
            await self._flush()

    async def write(self, data: bytes) -> None:
        """Types into the program that runs. Raises: as `Shell.write` does."""
        self._expect_news()
        try:
            await super().write(data)
        finally:
            self._expect_news()

    def _expect_news(self) -> None:
        self._waits, self._look_ms = False, _FIRST_LOOK_MS
        self._given += 1

    async def outcome(self, run: ShellRun, expect: Sequence[str] | None) -> Why:
        """Waits until there is something to answer about a command.

        Without texts that are expected, that is also a program that waits for input.
        """
        while (why := self._why(run, expect)) is None:
            await self._changed.wait()
        return why

    def _why(self, run: ShellRun, expect: Sequence[str] | None) -> Why | None:
        if run.state is not None:
            return Why.SYNTAX_ERROR if run.state.syntax_error else Why.FINISHED
        if self._over:
            return Why.ENDED
        if expect is not None:
            # It may come while a program also waits for input.
            return None if self.printed.found is None else Why.MATCHED
        return Why.WAITING if self._waits else None

    async def ended(self, run: ShellRun) -> None:
        """Waits until a command has ended, or the shell."""
        while run.state is None and not self._over:
            await self._changed.wait()

    # Reading.

    def _patience_ms(self) -> int:
        if self.run is None:
            return POLL_MS
        patience, self._look_ms = self._look_ms, min(2 * self._look_ms, _LAST_LOOK_MS)
        return patience

    async def read(self, wait_ms: int, limit: int = READ_BYTES) -> Page:
        """The next piece of the output, and what it says about the command that runs."""
        given = self._given
        page = await super().read(wait_ms, limit)
        run = self.run
        if run is not None:
            run.output_bytes += len(page.data)
        ends = run is not None and page.run is not None and self._ends(run, page.run)
        if ends or page.waits:
            await self._output.finish()
            await self._flush()
        self._waits = page.waits and not ends and given == self._given
        if ends and run is not None and page.run is not None:
            run.state, self.run = page.run, None
            self.cwd = page.run.cwd or self.cwd
        if page.data:
            self._look_ms = _FIRST_LOOK_MS
        self._tell()
        return page

    def _ends(self, run: ShellRun, state: RunState) -> bool:
        at = state.at
        return state.number == run.number and at is not None and self.position >= at

    def note_late(self) -> None:
        """Everything is read, and the shell has ended."""
        self._over, self.run = True, None
        self._tell()

    def _tell(self) -> None:
        """Wakes those who wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()
