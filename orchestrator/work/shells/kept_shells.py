"""Shells that keep their state: created by name, used for one command at a time, and ended."""

from contextlib import suppress
from typing import NamedTuple

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session
from orchestrator.work.shells.kept_shell import (
    NO_BASH,
    KeptShell,
    ShellSettings,
    kept_spec,
    record_name,
)
from orchestrator.work.shells.shell_runs import RunAnswer, ShellRuns, Until
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.shell import SHELL_LIMITS, ShellLimits
from orchestrator.work.terminals.shells import refused_shell
from orchestrator.work.terminals.terminals import Terminals
from sandbox_agent.decide.variables import refused_variable

# Kept shells of one session.
MOST_SHELLS = 8
_START_SECONDS = 30.0


class KeptShellView(NamedTuple):
    """A kept shell as clients see it."""

    name: str
    pty: str
    running: bool
    cwd: str
    opened_at: str


class KeptShells:
    """The kept shells of all sessions. A terminal owns each, and ends with whatever ends it."""

    def __init__(
        self,
        terminals: Terminals,
        recorder: Recorder,
        runs: ShellRuns,
        limits: ShellLimits = SHELL_LIMITS,
    ) -> None:
        self._terminals = terminals
        self._recorder = recorder
        self._runs = runs
        self._limits = limits
        # The settings of each, by its terminal, and the shells that are being opened.
        self._opening: dict[tuple[str, str], ShellSettings] = {}

    async def create(
        self, principal: Principal, session: Session, settings: ShellSettings
    ) -> tuple[KeptShellView, bool]:
        """The shell with these settings, and whether it is new.

        Raises: PermissionDeniedError with the rule; ConflictError if a shell of that name has other
        settings, or does not start; BusyError if the session has too many, or one of that name is
        being created; the errors of `Terminals.open_shell`.
        """
        session.check_open()
        session.secrets.check()
        await self._check(principal, session, settings)
        place = session.key, settings.name
        present = self._live(session).get(settings.name)
        if place in self._opening:
            raise BusyError(f"the shell {settings.name} is being created: try again")
        if present is not None:
            if _shell(present).settings != settings:
                message = f"the shell {settings.name} exists with another cwd or env: delete it"
                raise ConflictError(message, pty=present.id)
            return view(present), False
        opening = sum(key == session.key for key, _ in self._opening)
        if len(self._live(session)) + opening >= MOST_SHELLS:
            raise BusyError(f"{MOST_SHELLS} shells are kept in this session already: delete one")
        self._opening[place] = settings
        try:
            return view(await self._open(principal, session, settings)), True
        finally:
            del self._opening[place]

    async def _open(
        self, principal: Principal, session: Session, settings: ShellSettings
    ) -> OpenTerminal:
        """A shell with bash, or else with the image's `sh`."""
        live = await self._opened(principal, session, settings, bash=True)
        if await self._has_started(live):
            return live
        said = _said(live)
        if live.record.exit_code == NO_BASH and not said:
            live = await self._opened(principal, session, settings, bash=False)
            if await self._has_started(live):
                return live
            said = _said(live)
        raise ConflictError(f"the shell does not start: {said}", pty=live.id)

    async def _opened(
        self, principal: Principal, session: Session, settings: ShellSettings, *, bash: bool
    ) -> OpenTerminal:
        spec = kept_spec(settings, session.terms.env, self._limits, bash=bash)
        lifetime = float(self._limits.lifetime_seconds)
        live = await self._terminals.open_shell(principal, session, spec, lifetime)
        _shell(live).settings = settings
        return live

    async def _has_started(self, live: OpenTerminal) -> bool:
        """Whether it runs commands; otherwise it has been ended."""
        if await self._runs.started(live, _shell(live), _START_SECONDS):
            return True
        self._terminals.end(live, "failed")
        await live.closed.wait()
        return False

    async def _check(self, principal: Principal, session: Session, settings: ShellSettings) -> None:
        refused = refused_shell(session)
        if refused is None:
            level = session.level
            message = refused_variable(settings.env, {}, level.environment, level.name)
            refused = None if message is None else ("environment-allowlist", message)
        if refused is None:
            return
        rule, message = refused
        args = {"tool": record_name(settings.name)}
        draft = EventDraft("pty.open", actor=principal.name, rule=rule, args=args, error=message)
        await self._recorder.refuse(session, draft)
        raise PermissionDeniedError(message, rule=rule)

    def list(self, session: Session) -> list[KeptShellView]:
        """The session's shells, oldest first."""
        return [view(live) for live in self._live(session).values()]

    async def get(self, session: Session, name: str) -> KeptShellView:
        """One shell. Raises: NotFoundError, ConflictError with the `reason` if it has ended."""
        return view(await self._find(session, name))

    async def run(
        self,
        principal: Principal,
        session: Session,
        name: str,
        command: str,
        until: Until,
    ) -> RunAnswer:
        """Runs a command and returns its answer.

        A caller that is cancelled meanwhile stops the command. Raises: BusyError while another
        command runs, and the errors of `ShellRuns.run`, and as `input`.
        """
        session.check_open()
        live = await self._find(session, name)
        return await self._runs.run(principal, live, _shell(live), command, until)

    async def input(
        self,
        principal: Principal,
        session: Session,
        name: str,
        text: str,
        until: Until,
    ) -> RunAnswer:
        """Types a text into the program that runs, and returns the command's next answer.

        Raises: NotFoundError, ConflictError if the shell has ended or no command runs; BusyError
        while another caller waits for it.
        """
        session.check_open()
        live = await self._find(session, name)
        return await self._runs.input(principal, live, _shell(live), text, until)

    async def interrupt(self, session: Session, name: str) -> KeptShellView:
        """Interrupts the command that runs; if none does, nothing happens. Raises: as `input`."""
        session.check_open()
        live = await self._find(session, name)
        shell = _shell(live)
        if shell.run is not None:
            with suppress(ConflictError):  # it has just ended
                await shell.interrupt(shell.run)
        return view(live)

    async def close(self, session: Session, name: str) -> KeptShellView:
        """Ends a shell and all that it has started. Raises: NotFoundError, ConflictError."""
        live = await self._find(session, name)
        shown = view(live)
        await self._terminals.close(session, live.id)
        return shown._replace(running=False)

    async def _find(self, session: Session, name: str) -> OpenTerminal:
        live = self._live(session).get(name)
        if live is not None:
            return live
        for record in reversed(await self._terminals.records.list(session.key)):
            if record.tool == record_name(name) and record.kind == "shell":
                message = f"the shell {name} has ended ({record.reason}): create it again"
                raise ConflictError(message, pty=record.id, reason=record.reason)
        raise NotFoundError(f"there is no shell {name}: create it first")

    def _live(self, session: Session) -> dict[str, OpenTerminal]:
        return {
            live.terminal.name: live
            for live in self._terminals.live(session)
            if isinstance(live.terminal, KeptShell) and live.reason is None and live.ending is None
        }


def _said(live: OpenTerminal) -> str:
    """The end of what a shell that does not start has printed."""
    return _shell(live).printed.take().text.strip()[-500:]


def _shell(live: OpenTerminal) -> KeptShell:
    assert isinstance(live.terminal, KeptShell)  # noqa: S101 - it was found as one
    return live.terminal


def view(live: OpenTerminal) -> KeptShellView:
    """The shell as it is now."""
    shell = _shell(live)
    running = shell.run is not None
    return KeptShellView(shell.name, live.id, running, shell.cwd, live.record.opened_at)
