"""The code contexts of sessions: made, found, begun anew, interrupted, removed."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft, now
from orchestrator.host.link.earlier_agents import CODE
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.packs.decisions import outside_pack
from orchestrator.state.requests import ExecRequest
from orchestrator.state.session import Session
from orchestrator.work.code.cell import CellStatus
from orchestrator.work.code.context import CodeContext
from orchestrator.work.code.started import Started
from orchestrator.work.commands.execution import Executions

LEVEL_RULE = "code-level"
# The language of a context that has neither a name nor a language.
DEFAULT_LANGUAGE = "python"
MOST_CONTEXTS = 8
# Cells that wait for one context.
_MOST_WAITING = 16
_PROGRAM = "python3"


class Contexts:
    """The contexts of each session, by their names."""

    def __init__(self, recorder: Recorder, executions: Executions) -> None:
        self._recorder = recorder
        self._executions = executions
        # By session key.
        self._found: dict[str, dict[str, CodeContext]] = {}

    def listed(self, session: Session) -> list[CodeContext]:
        """The session's contexts, in the order of their creation."""
        return list(self._found.get(session.key, {}).values())

    def get(self, session: Session, name: str) -> CodeContext:
        """Raises: NotFoundError."""
        found = self._found.get(session.key, {}).get(name)
        if found is None:
            raise NotFoundError(f"this session has no code context {name[:64]}")
        return found

    async def create(
        self,
        principal: Principal,
        session: Session,
        name: str | None,
        language: str,
        directory: str | None,
    ) -> CodeContext:
        """A new context whose program takes cells.

        Raises: ConflictError if there is one of that name; the errors of `start` and `add`.
        """
        name = name or f"code-{secrets.token_hex(3)}"
        if name in self._found.get(session.key, {}):
            raise ConflictError(f"this session has a code context {name} already")
        context = await self._add(principal, session, name, language, directory)
        async with context.lock:
            try:
                await self.start(principal, session, context)
            except BaseException:
                self._drop(session, context)
                raise
        return context

    @asynccontextmanager
    async def turn(
        self, principal: Principal, session: Session, name: str | None, language: str | None
    ) -> AsyncIterator["Turn"]:
        """A cell's turn in the context of that name, or in the one of its language.

        The latter is made when it is first needed. Raises: NotFoundError, BusyError if too many
        cells wait; ValidationError for a named context of another language; the errors of
        `check_level`.
        """
        context = await self._wanted(principal, session, name, language)
        if context.waiting >= _MOST_WAITING:
            raise BusyError(f"{_MOST_WAITING} cells wait for {context.name} already")
        context.waiting += 1
        try:
            await context.lock.acquire()
        finally:
            context.waiting -= 1
        turn = Turn(context)
        try:
            if context.removed:
                raise NotFoundError(f"the code context {context.name} was removed meanwhile")
            yield turn
        finally:
            if not turn.taken:
                context.lock.release()

    async def start(self, principal: Principal, session: Session, context: CodeContext) -> bool:
        """Has its program running; returns whether it was begun now. Its lock is held.

        Raises: ValidationError for a language that the sandbox does not have; the errors of
        `check_level` and `Executions.start`; ConflictError if it ends at once.
        """
        await self._check_level(principal, session)
        if context.alive:
            return False
        request = ExecRequest(
            argv=context.argv, cwd=context.directory, background=True, stdin_open=True
        )
        command = await self._executions.start(principal, session, request)
        context.begin(command)
        started = Started()
        try:
            await started.wait(session, context)
        finally:
            if not context.alive:
                await self._executions.end(session, command, "code_not_ready")
                context.forget_program()
        command.waits = True
        return True

    async def restart(self, principal: Principal, session: Session, name: str) -> CodeContext:
        """Begins a context anew, without its names; the cell that is executed is interrupted.

        Raises: NotFoundError, and the errors of `start`.
        """
        context = self.get(session, name)
        session.check_open()
        await self._end(session, context, "code_restart")
        async with context.lock:
            if context.removed:
                raise NotFoundError(f"the code context {name} was removed meanwhile")
            await self.start(principal, session, context)
        return context

    def interrupt(self, session: Session, name: str) -> CodeContext:
        """Interrupts the cell that is executed, if there is one. Raises: NotFoundError."""
        context = self.get(session, name)
        session.check_open()
        if context.cell is not None:
            context.cell.stop(CellStatus.INTERRUPTED)
        return context

    async def remove(self, session: Session, name: str) -> CodeContext:
        """Ends a context. Raises: NotFoundError, SandboxUnavailableError."""
        context = self.get(session, name)
        self._drop(session, context)
        await self._end(session, context, "code_removed")
        return context

    async def _end(self, session: Session, context: CodeContext, reason: str) -> None:
        """Ends a context's program, and with it the cell that is executed."""
        command = context.command
        if context.cell is not None:
            context.cell.stop(CellStatus.INTERRUPTED)
        if command is not None and not command.ended:
            await self._executions.end(session, command, reason)
            context.kernel = None

    async def _wanted(
        self, principal: Principal, session: Session, name: str | None, language: str | None
    ) -> CodeContext:
        await self._check_level(principal, session)
        if name is None:
            name = language = language or DEFAULT_LANGUAGE
            found = self._found.get(session.key, {}).get(name)
            if found is None:
                found = await self._add(principal, session, name, language, None)
        else:
            found = self.get(session, name)
        if language not in (None, found.language):
            raise ValidationError(
                f"the code context {found.name} has the language {found.language}",
                field="language",
            )
        return found

    async def _add(
        self,
        principal: Principal,
        session: Session,
        name: str,
        language: str,
        directory: str | None,
    ) -> CodeContext:
        """Raises: BusyError if there are too many; the errors of `_check_level`."""
        await self._check_level(principal, session)
        contexts = self._found.get(session.key)
        if contexts is None:
            contexts = self._found[session.key] = {}
            session.over.add_done_callback(lambda _: self._found.pop(session.key, None))
        if len(contexts) >= MOST_CONTEXTS:
            raise BusyError(f"this session has {MOST_CONTEXTS} code contexts already: remove one")
        context = contexts[name] = CodeContext(name, language, directory, now())
        return context

    def _drop(self, session: Session, context: CodeContext) -> None:
        context.removed = True
        self._found.get(session.key, {}).pop(context.name, None)

    async def _check_level(self, principal: Principal, session: Session) -> None:
        """Raises PermissionDeniedError, which is on record; errors of `check_open`, `said`."""
        session.check_open().link.said(CODE, {})
        session.secrets.check()
        refused = _refused(session)
        if refused is None:
            return
        rule, message = refused
        draft = EventDraft("code.start", actor=principal.name, rule=rule, error=message)
        await self._recorder.refuse(session, draft)
        raise PermissionDeniedError(message, rule=rule)


class Turn:
    """A cell's turn in a context: `take` keeps it, and whoever does so releases the lock."""

    def __init__(self, context: CodeContext) -> None:
        self.context = context
        self.taken = False

    def take(self) -> None:
        """Keeps the turn."""
        self.taken = True


def _refused(session: Session) -> tuple[str, str] | None:
    """The rule and the reason if the session may execute no code."""
    if session.level.commands is not None:
        level = session.level.name
        message = f"the level {level} permits single commands, and no interpreter for code"
        return LEVEL_RULE, message
    return outside_pack(session.pack, _PROGRAM)
