"""Live shells of persons and programs: who may open one, who watches, and what ends it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from orchestrator.ground.errors import BusyError, PermissionDeniedError, ValidationError
from orchestrator.ground.events import EventDraft
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.sandbox.packs.decisions import outside_pack
from orchestrator.state.session import Session
from orchestrator.work.terminals.evidence_files import EvidenceError
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.shell import NAME, SHELL_LIMITS, Shell, ShellLimits, shell_spec
from orchestrator.work.terminals.terminal import Status
from orchestrator.work.terminals.terminals import Terminals
from orchestrator.work.terminals.viewers import Size, Viewer
from sandbox_agent.decide.command_words import CommandError
from sandbox_agent.decide.commands import normalize_cwd
from sandbox_agent.decide.variables import refused_variable

LEVEL_RULE = "shell-level"
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
REVOKED = "key_revoked"
# The program, as the shell allowlist of a context pack names it.
_PROGRAM = "bash"
# The roles whose shells stay open.
_ROLES = (Role.ADMIN, Role.OPERATOR)


class Watched(NamedTuple):
    """A terminal and one of its viewers; `shell` is set if the viewer may type.

    `give_up` ends a shell whose evidence can't be kept.
    """

    live: OpenTerminal
    viewer: Viewer
    shell: Shell | None
    give_up: Callable[[], None]

    async def type(self, data: bytes) -> None:
        """Types into the shell.

        Raises: PermissionDeniedError if the viewer only watches; the errors of `Shell.write`.
        """
        if self.shell is None:
            raise PermissionDeniedError("this viewer only watches")
        if data:
            with self._recorded():
                await self.shell.write(data)

    async def resize(self, size: Size) -> None:
        """Gives a shell another size, for all viewers; one who only watches changes nothing.

        Raises: the errors of `Shell.resize`.
        """
        if self.shell is None or size == self.live.viewers.size:
            return
        with self._recorded():
            self.live.evidence.resized(*size)
            await self.live.evidence.flush()
        await self.shell.resize(size)
        self.live.viewers.resize(size)

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Ends the shell if its evidence can't be kept, so that nothing happens unrecorded."""
        try:
            yield
        except EvidenceError:
            self.give_up()
            raise


class Shells:
    """The shells of this instance, and the viewers of all terminals."""

    def __init__(
        self,
        keys: KeyRing,
        glass: BreakGlass,
        terminals: Terminals,
        recorder: Recorder,
        limits: ShellLimits = SHELL_LIMITS,
    ) -> None:
        self._keys = keys
        self._glass = glass
        self._terminals = terminals
        self._recorder = recorder
        self._limits = limits
        # By the session's key.
        self._opening: Counter[str] = Counter()
        self._ignore_keys = keys.on_change(self._recheck)

    def close(self) -> None:
        """Stops following changes of keys."""
        self._ignore_keys()

    async def open(
        self,
        principal: Principal,
        session: Session,
        size: Size,
        *,
        env: Mapping[str, str] = NO_VARIABLES,
        cwd: str | None = None,
    ) -> OpenTerminal:
        """A new shell, where the session's level permits one.

        `env` are variables besides the session's; `cwd` is a directory, by default the workspace.
        Raises: PermissionDeniedError with the rule, ValidationError, BusyError if the session has
        too many, and the errors of `Terminals.open_shell`.
        """
        session.check_open()
        session.secrets.check()
        directory = "" if cwd is None else _directory(cwd, session)
        refused = refused_shell(session) or _refused_variable(session, env)
        if refused is not None:
            rule, message = refused
            draft = EventDraft(
                "pty.open", actor=principal.name, rule=rule, args={"tool": NAME}, error=message
            )
            await self._recorder.refuse(session, draft)
            raise PermissionDeniedError(message, rule=rule)
        most = self._limits.shells
        if self._count(session) >= most:
            raise BusyError(f"{most} shells are open in this session already: end one")
        spec = shell_spec(size, {**session.terms.env, **env}, self._limits, directory)
        self._opening[session.key] += 1
        try:
            idle_seconds = self._limits.idle_seconds
            return await self._terminals.open_shell(principal, session, spec, idle_seconds)
        finally:
            self._opening -= Counter([session.key])

    def _count(self, session: Session) -> int:
        """The session's shells, with those that are being opened."""
        opened = sum(
            _persons(live) is not None and live.status is not Status.SPAWNING
            for live in self._terminals.live(session)
        )
        return opened + self._opening[session.key]

    @contextmanager
    def watching(self, live: OpenTerminal, *, types: bool, held: bool = True) -> Iterator[Watched]:
        """Watches a live terminal meanwhile; with `types`, a shell's viewer may type.

        `held`: it begins with what was last printed. Raises: BusyError if it has too many viewers.
        """
        shell = _persons(live)
        viewer = live.viewers.join(held=held)
        try:
            if shell is not None:
                shell.use()
            yield Watched(
                live,
                viewer,
                shell if types else None,
                lambda: self._terminals.end(live, "evidence_unavailable"),
            )
        finally:
            live.viewers.leave(viewer)
            if shell is not None:
                shell.use()

    def _recheck(self) -> None:
        """Ends the shells of keys that may not have them any more.

        All that an admin has opened by break-glass access ends with it.
        """
        for live in self._terminals.all_live:
            session = live.session
            inside = self._glass.allows(live.opener, session.key, session.owner)
            if not inside or (_persons(live) is not None and not self._may_have(live)):
                self._terminals.end(live, REVOKED)

    def _may_have(self, live: OpenTerminal) -> bool:
        if live.opener.role is Role.HANDLE:
            return live.session.live
        key = self._keys.current(live.opener)
        if key is None or key.role not in _ROLES:
            return False
        return key.may_see(live.session.key, live.session.owner)


def _persons(live: OpenTerminal) -> Shell | None:
    """The shell, if it is a person's."""
    shell = live.terminal
    return shell if isinstance(shell, Shell) and shell.spec.kept_cwd is None else None


def _directory(cwd: str, session: Session) -> str:
    try:
        return normalize_cwd(cwd or ".", session.workspace_path, anywhere=True)
    except CommandError as error:
        raise ValidationError(str(error), field="cwd") from None


def _refused_variable(session: Session, env: Mapping[str, str]) -> tuple[str, str] | None:
    message = refused_variable(env, {}, session.level.environment, session.level.name)
    return None if message is None else ("environment-allowlist", message)


def refused_shell(session: Session) -> tuple[str, str] | None:
    """The rule and the reason if the session may have no shell."""
    if session.level.commands is not None:
        message = f"the level {session.level.name} permits single commands, and no shell"
        return LEVEL_RULE, message
    return outside_pack(session.pack, _PROGRAM)
