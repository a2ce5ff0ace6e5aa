"""What all file operations share: which path is meant, and when the agent's answer counts."""

from typing import Any, NamedTuple

from orchestrator.ground.errors import (
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.log_context import asked_as
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.link.ask_tokens import AskedBy
from orchestrator.host.workspace.paths import (
    PATH_RULE,
    escape_message,
    inside_path,
    outside_path,
    volume_path,
)
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.packs.firewall import ContextFirewall
from orchestrator.state.session import Session
from orchestrator.work.files.file_agent import FileAgent
from orchestrator.work.files.file_entries import whole_number
from orchestrator.work.files.file_stream import FileStream
from sandbox_agent.decide.files import names
from sandbox_agent.decide.protocol import Message

# Those that change nothing.
_READING = frozenset(
    {"file.read", "file.list", "file.stat", "file.search", "file.pack", "file.watch"}
)


class Conditions(NamedTuple):
    """The versions that a file must have, and must not have, `*` for any; None: any or none."""

    match: tuple[str, ...] | None = None
    none_match: tuple[str, ...] | None = None

    def params(self) -> dict[str, list[str]]:
        """Their members of a request to an agent."""
        return {name: list(each) for name, each in self._asdict().items() if each is not None}


NO_CONDITIONS = Conditions()


class FileRequests:
    """Prepares and sends the requests of file operations to agents."""

    def __init__(self, recorder: Recorder, firewall: ContextFirewall) -> None:
        self._recorder = recorder
        self.firewall = firewall
        self._tasks = TaskScope("the opening of a file")

    async def prepare(
        self,
        principal: Principal,
        session: Session,
        operation: str,
        path: str,
        *,
        whole: bool = False,
        name: str = "path",
        writes: bool | None = None,
        tree: bool = False,
    ) -> tuple[FileAgent, str]:
        """The agent, and the path in its form: relative to the workspace, or absolute.

        `whole` permits the workspace itself. `writes`: the path is written, whatever the operation
        does otherwise. `tree`: so is all that is below it.

        A path whose text leaves the workspace is refused here and recorded. The agent's kernel
        refuses paths that leave it through links.
        """
        sandbox = session.check_open()
        self._recorder.check_room(session)
        check_path(path, name)
        if session.pack is not None and names.has_escape(path):
            text = f"{name} is not UTF-8: such names are in no context pack"
            raise ValidationError(text, field=name)
        await self.firewall.check(principal, session, operation, path, tree=tree)
        workspace = session.workspace_path
        relative = inside_path(path, workspace)
        changes = operation not in _READING if writes is None else writes
        if relative is None:
            relative = volume_path(path, _volumes(session, writes=changes), workspace)
        if relative is None and session.level.commands is None and session.pack is None:
            relative = outside_path(path, workspace, writes=changes)
        if relative is None:
            raise await self.escape(principal, session, operation, name, path)
        if relative == "." and not whole:
            raise ValidationError(f"{name} must name something inside the workspace", field=name)
        asker = AskedBy(principal.name, asked_as())
        token = self._recorder.ask_tokens.token(session.key, asker)
        return FileAgent(sandbox.link, token), relative

    async def escape(
        self, principal: Principal, session: Session, operation: str, name: str, path: str
    ) -> PermissionDeniedError:
        """The recorded refusal of a path that leaves the workspace, or is in a read-only volume."""
        detail = escape_message(path)
        if volume_path(path, session.terms.volume_paths, session.workspace_path) is not None:
            detail = f"the session has the volume for reading only: {path[:256]}"
        await self._recorder.refuse(
            session,
            EventDraft(
                operation, actor=principal.name, rule=PATH_RULE, args={name: path}, error=detail
            ),
        )
        return PermissionDeniedError(detail, rule=PATH_RULE, field=name)

    async def open(self, link: FileAgent, operation: str, path: str, **members: Any) -> Message:
        """Opens a stream; closes it again if the caller is cancelled meanwhile."""

        def abandoned(opened: Message) -> None:
            self._tasks.spawn(stream_of(link, opened).close())

        params = {"op": operation, "path": path, **members}
        return await self._tasks.shield(self.ask(link, "file.open", params), abandoned)

    async def ask(self, link: FileAgent, method: str, params: Message) -> Message:
        """The agent's answer, or its error, once the reported event is recorded."""
        try:
            answer = await link.ask(method, params)
        except SandboxUnavailableError:
            raise
        except PaddockError:
            await link.settled()
            raise
        await link.settled()
        return answer


def _volumes(session: Session, *, writes: bool) -> tuple[str, ...]:
    terms = session.terms
    return terms.written_volumes if writes else terms.volume_paths


def stream_of(link: FileAgent, opened: Message) -> FileStream:
    """The stream that the agent opened. Raises: SandboxUnavailableError for a malformed answer."""
    return FileStream(link, whole_number(opened, "stream"))


def check_path(path: str, name: str = "path") -> None:
    """Raises ValidationError for a path that is empty, too long or not as lists have it."""
    if not path:
        raise ValidationError(f"{name} must not be empty", field=name)
    if "\0" in path:
        raise ValidationError(f"{name} has a NUL character", field=name)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"{name} is not valid Unicode", field=name) from None
    if not names.is_shown(path):
        raise ValidationError(f"{name} {names.NOT_SHOWN}", field=name)
    if len(names.real(path).encode("utf-8", "surrogateescape")) > names.MOST_BYTES:
        raise ValidationError(f"{name} is longer than {names.MOST_BYTES} bytes", field=name)
