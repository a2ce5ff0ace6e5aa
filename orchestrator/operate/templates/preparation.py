"""Prepares a template: a session gets its files and runs its commands, and a snapshot is taken."""

import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from orchestrator.ground.errors import ConflictError, PermissionDeniedError, ValidationError
from orchestrator.ground.events import now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.operate.templates.request import preparing
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy.levels import Level
from orchestrator.rules.templates.template import Template
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.command import CommandExit
from orchestrator.state.requests import ExecRequest
from orchestrator.state.session import Session
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.whole_output import whole_output
from orchestrator.work.files.files import Files

# It owns the sessions that prepare templates, and the snapshots. No key can have this name.
PREPARER = Principal("system:templates", Role.ADMIN)
# What is kept of a failing command's output, and what of that an error has.
_MOST_OUTPUT = 16 * 1024
_MOST_SHOWN = 1024


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """What is prepared of a template: its level, its image, the digest of all that goes in."""

    template: Template
    level: Level
    image: str
    image_id: str
    digest: str

    @property
    def snapshot(self) -> str:
        """The name of the snapshot."""
        return f"{self.template.name}-{self.digest[:16]}"


@dataclass(frozen=True, slots=True)
class PreparationFailure:
    """Why a template could not be prepared; `command` is None if none of its commands failed."""

    digest: str
    error: str
    at: str
    command: str | None = None
    exit_code: int | None = None
    output: str = ""


class CommandFailedError(ConflictError):
    """One of a template's commands has failed, or was refused."""

    def __init__(
        self,
        version: TemplateVersion,
        command: str,
        how: str,
        exit_code: int | None = None,
        output: str = "",
    ) -> None:
        error = f"{shlex.quote(command)} {how}"
        shown = output.strip()[-_MOST_SHOWN:]
        super().__init__(
            f"the template {version.template.name} could not be prepared: {error}"
            f"{': ' if shown else ''}{shown}"
        )
        self.failure = PreparationFailure(version.digest, error, now(), command, exit_code, output)


class Preparation:
    """Prepares templates, each in a session of its own, which is gone afterwards."""

    def __init__(
        self,
        sessions: Sessions,
        files: Files,
        executions: Executions,
        snapshots: NamedSnapshots,
        seconds: int,
    ) -> None:
        """`seconds` is how long such a session may live."""
        self._sessions = sessions
        self._files = files
        self._executions = executions
        self._snapshots = snapshots
        self._seconds = seconds

    async def run(self, version: TemplateVersion) -> NamedSnapshot:
        """The snapshot of the prepared workspace.

        Raises: CommandFailedError; the errors of `Sessions.create`, `Files.write`,
        `Executions.start` and `NamedSnapshots.take`.
        """
        request = preparing(version.template, version.level.name, version.image, self._seconds)
        session = (await self._sessions.create(PREPARER, request)).session
        try:
            for path, text in version.template.files.items():
                await self._files.write(
                    PREPARER, session, path, "overwrite", _pieces(text), parents=True
                )
            for command in version.template.setup:
                await self._command(version, session, command)
            FaultPoint.TEMPLATE_RAN.reached()
            taken = await self._snapshots.take(PREPARER, session, version.snapshot)
            FaultPoint.TEMPLATE_TAKEN.reached()
            return taken.snapshot
        finally:
            await self._sessions.close(PREPARER, session, purge=True)

    async def _command(self, version: TemplateVersion, session: Session, line: str) -> None:
        """Runs one command: a line for a shell where the level permits one."""
        shell = version.level.commands is None
        words = ExecRequest(shell=line) if shell else ExecRequest(command=line)
        request = replace(words, merge=True, background=True)
        try:
            command = await self._executions.start(PREPARER, session, request)
        except (PermissionDeniedError, ValidationError) as error:
            raise CommandFailedError(version, line, f"was refused: {error.detail}") from None
        result = await self._executions.wait(session, command)
        if result.exit_code != 0:
            kept = await whole_output(session, command, result.output_bytes, _MOST_OUTPUT)
            output = kept["stdout"].text
            raise CommandFailedError(version, line, _ending(result), result.exit_code, output)


async def _pieces(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


def _ending(result: CommandExit) -> str:
    if result.exit_code is not None:
        return f"ended with exit code {result.exit_code}"
    if result.signal is not None:
        return f"was ended by {result.signal}"
    return f"ended without a result: {result.reason or result.error or 'unknown'}"
