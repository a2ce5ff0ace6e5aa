"""A backend of LangChain's deepagents: `PaddockBackend(session)`."""

from collections.abc import Callable

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from paddock.client.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    PaddockAPIError,
    PermissionDeniedError,
    ValidationError,
)
from paddock.client.faces import Sync
from paddock.client.session import Session
from paddock.integrations.refusals import REFUSED_STATUS, TIMEOUT_STATUS, explained, timed_out

# What a model can do something about; after other errors there is no sandbox to work in.
_FOR_THE_MODEL = (PermissionDeniedError, ValidationError, BusyError)


class PaddockBackend(BaseSandbox):
    """A session as a backend; whoever created the session closes it.

    The session's level must permit any command, because the backend's file tools are lines for a
    shell.
    """

    def __init__(self, session: Session[Sync], *, timeout: float | None = None) -> None:
        """`timeout` is in seconds, for commands without their own; None: the level's."""
        self._session = session
        self._timeout = timeout

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Has bash run a line; 0 seconds are the level's time-out.

        A refusal is the output, with the rule and what to do instead, and the exit code 126.
        Raises: PaddockError if the session has ended or nobody answers.
        """
        seconds = (self._timeout if timeout is None else timeout) or None
        try:
            done = self._session.shell(command, merge=True, timeout=seconds)
        except _FOR_THE_MODEL as error:
            return ExecuteResponse(f"refused: {explained(error)}\n", REFUSED_STATUS)
        if done.timed_out:
            output = f"{done.stdout}\n{timed_out(seconds)}\n".lstrip("\n")
            return ExecuteResponse(output, TIMEOUT_STATUS, done.truncated)
        return ExecuteResponse(done.stdout, done.exit_code, done.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, and makes the directories above them; each answer has its own error."""
        return [FileUploadResponse(path, self._sent(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files; each answer has its content or its own error."""
        return [self._fetched(path) for path in paths]

    def _sent(self, path: str, content: bytes) -> str | None:
        return self._failure(path, lambda: self._session.files.write(path, content, parents=True))

    def _fetched(self, path: str) -> FileDownloadResponse:
        found: list[bytes] = []
        failure = self._failure(path, lambda: found.append(self._session.files.read(path)))
        return FileDownloadResponse(path, found[0] if found else None, failure)

    def _failure(self, path: str, work: Callable[[], object]) -> str | None:
        """The backend's word for what fails, or what the control plane says; None: it worked."""
        if not path.startswith("/"):
            return "invalid_path"
        try:
            work()
        except NotFoundError:
            return "file_not_found"
        except PermissionDeniedError:
            return "permission_denied"
        except ValidationError:
            return "invalid_path"
        except ConflictError as error:
            return "is_directory" if self._is_directory(path) else explained(error)
        return None

    def _is_directory(self, path: str) -> bool:
        try:
            return self._session.files.stat(path).type == "directory"
        except PaddockAPIError:
            return False
