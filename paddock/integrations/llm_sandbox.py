"""A backend of llm-sandbox: `register()`, then `SandboxSession(backend="paddock", …)`."""

import io
import shlex
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from llm_sandbox.backends import BackendCapabilities, register_backend
from llm_sandbox.const import EncodingErrorsType, SupportedLanguage
from llm_sandbox.core.config import SessionConfig
from llm_sandbox.core.session_base import BaseSession
from llm_sandbox.data import ConsoleOutput, StreamCallback
from llm_sandbox.exceptions import (
    CommandEmptyError,
    ContainerError,
    NotOpenSessionError,
    SandboxTimeoutError,
    SecurityError,
)
from llm_sandbox.security import SecurityPolicy

from paddock.client.errors import (
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    ValidationError,
)
from paddock.client.faces import Sync
from paddock.client.one_session import session
from paddock.client.paddock import PaddockSync
from paddock.client.results import StreamedOutput
from paddock.client.session import Session
from paddock.contract.commands import Exit, ExitData
from paddock.integrations.refusals import REFUSED_STATUS, explained, timed_out

NAME = "paddock"
_CAPABILITIES = BackendCapabilities(
    container_images=True,
    filesystem_isolation=True,
    network_isolation=True,
    seccomp=True,
    daemon_required=True,
)


def register() -> None:
    """Makes `paddock` the name of a backend; once in a process. Raises: ValueError."""
    register_backend(NAME, PaddockSession, capabilities=_CAPABILITIES)


class PaddockSession(BaseSession):
    """A session of Paddock from `open` to `close`, whose workspace is at `workdir`.

    A command is split into words as by the Docker backend, so that no shell is needed. All methods
    raise llm-sandbox's ContainerError if the session can't be created or has ended.
    """

    def __init__(
        self,
        *,
        lang: str = SupportedLanguage.PYTHON,
        image: str | None = None,
        workdir: str = "/sandbox",
        verbose: bool = False,
        stream: bool = False,
        libraries: list[str] | None = None,
        security_policy: SecurityPolicy | None = None,
        default_timeout: float | None = 60,
        execution_timeout: float | None = None,
        session_timeout: float | None = None,
        container_id: str | None = None,
        skip_environment_setup: bool = False,
        encoding_errors: EncodingErrorsType = "strict",
        url: str | None = None,
        key: str | None = None,
        context: str | None = None,
        dockerfile: str | None = None,
        keep_template: bool = False,
        commit_container: bool = False,
        runtime_configs: dict[str, Any] | None = None,
        **terms: Any,
    ) -> None:
        """Takes llm-sandbox's options, and those of `SessionTerms`, such as `permission_level`.

        `container_id` is the id of a session that exists, which `close` leaves as it is.
        Raises: ValueError for what only container engines have.
        """
        engines = {
            "dockerfile": dockerfile,
            "keep_template": keep_template,
            "commit_container": commit_container,
            "runtime_configs": runtime_configs,
        }
        if given := [name for name, value in engines.items() if value]:
            instead = "use `image`, `template`, `limits` and `env`"
            raise ValueError(f"not options of this backend: {', '.join(given)}; {instead}")
        config = SessionConfig(
            lang=SupportedLanguage(lang),
            image=image,
            workdir=workdir,
            verbose=verbose,
            security_policy=security_policy,
            default_timeout=default_timeout,
            execution_timeout=execution_timeout,
            session_timeout=session_timeout,
            container_id=container_id,
            skip_environment_setup=skip_environment_setup,
            encoding_errors=encoding_errors,
        )
        super().__init__(config, libraries=libraries)
        self.container: Session[Sync] | None = None
        self.stream = stream
        self._address = (url, key, context)
        self._terms = {"image": image, "workspace_path": workdir, **terms}
        self._owner = ExitStack()

    def open(self) -> None:
        """Creates the session and prepares the language's environment."""
        super().open()
        url, key, context = self._address
        try:
            if self.config.container_id is None:
                one = session(url, key, context=context, **self._terms)
                self.container = self._owner.enter_context(one)
            else:
                self._connect_to_existing_container(self.config.container_id)
            self.environment_setup()
        except PaddockError as error:
            self.close()
            raise ContainerError(explained(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the session, and removes its files; once."""
        super().close()
        self.container = None
        self._owner.close()

    def environment_setup(self) -> None:
        """As by other backends, but Python's environment has pip only if the image has it.

        Nothing is fetched, unless libraries are asked for.
        """
        ours = self.config.lang == SupportedLanguage.PYTHON and not self.using_existing_container
        if not ours or self.config.skip_environment_setup:
            super().environment_setup()
            return
        python = f"python3 -m venv --system-site-packages {shlex.quote(self._python_env_dir)}"
        if self.execute_command(python).exit_code:
            self._require(self.execute_command(f"{python} --clear --without-pip"))
        if self._initial_libraries:
            self.install(self._initial_libraries)

    def execute_command(
        self,
        command: str,
        workdir: str | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ConsoleOutput:
        """Runs a command; a refusal is its error output, with the exit code 126.

        Raises: SandboxTimeoutError if the level's time-out ends it.
        """
        if not command:
            raise CommandEmptyError
        told = {"stdout": on_stdout, "stderr": on_stderr}
        try:
            argv = shlex.split(command)
            done, printed = _run(self._opened(), argv, workdir, told)
        except (PermissionDeniedError, ValidationError) as error:
            return ConsoleOutput(exit_code=REFUSED_STATUS, stderr=explained(error))
        except PaddockError as error:
            raise ContainerError(explained(error)) from error
        if done.timed_out:
            raise SandboxTimeoutError(timed_out(None))
        errors = self.config.encoding_errors
        out, err = (printed[name].decode(errors=errors) for name in told)
        code = -1 if done.exit_code is None else done.exit_code
        return ConsoleOutput(exit_code=code, stdout=out, stderr=err)

    def copy_to_runtime(self, src: str, dest: str) -> None:
        """Copies a file or a directory into the session. Raises: OSError, SecurityError."""
        files, path = self._opened().files, self._validate_container_path(dest)
        source = Path(src)
        try:
            if source.is_dir():
                files.upload_dir(source, path)
            else:
                mode = source.stat().st_mode & 0o777
                files.write(path, source.open("rb"), permissions=mode, parents=True)
        except PaddockError as error:
            raise _of_file(error) from error

    def copy_from_runtime(self, src: str, dest: str) -> None:
        """Copies a file or a directory out of the session. Raises: OSError, SecurityError."""
        files, target = self._opened().files, Path(dest)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if files.stat(src).type == "directory":
                files.download_dir(src, target)
            else:
                files.download(src, target)
        except PaddockError as error:
            raise _of_file(error) from error

    def get_archive(self, path: str) -> tuple[bytes, dict[str, Any]]:
        """A file as a tar archive, with its name and size. Raises: OSError, SecurityError."""
        try:
            content = self._opened().files.read(path)
        except PaddockError as error:
            raise _of_file(error) from error
        member = tarfile.TarInfo(Path(path).name)
        member.size = len(content)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.addfile(member, io.BytesIO(content))
        return packed.getvalue(), {"name": member.name, "size": member.size}

    def _opened(self) -> Session[Sync]:
        if self.container is None:
            raise NotOpenSessionError
        return self.container

    def _require(self, done: ConsoleOutput) -> None:
        if done.exit_code:
            raise ContainerError(f"Python's environment can't be made: {done.stderr.strip()}")

    def _connect_to_existing_container(self, container_id: str) -> None:
        url, key, context = self._address
        client = self._owner.enter_context(PaddockSync(url, key, context=context))
        self.container = client.sessions.get(container_id)

    def _handle_timeout(self) -> None:
        """Ends what runs; the session and its files stay."""
        if self.container is not None:
            self.container.interrupt()

    def _ensure_directory_exists(self, path: str) -> None:
        self._opened().files.mkdir(path)

    def _ensure_ownership(self, paths: list[str]) -> None:
        """Everything in a workspace is its session's."""

    def _process_non_stream_output(self, output: Any) -> tuple[str, str]:
        """Output is decoded where it arrives."""
        raise NotImplementedError

    def _process_stream_output(
        self,
        output: Any,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> tuple[str, str]:
        """Output is decoded where it arrives."""
        raise NotImplementedError


def _run(
    opened: Session[Sync],
    argv: list[str],
    cwd: str | None,
    told: dict[str, StreamCallback | None],
) -> tuple[Exit, dict[str, bytes]]:
    """A command's end and its output, which is told while it runs if somebody wants it."""
    if not any(told.values()):
        done = opened.exec(argv=argv, cwd=cwd)
        return done, {"stdout": done.stdout_bytes, "stderr": done.stderr_bytes}
    printed = dict.fromkeys(told, b"")
    for event in opened.exec_stream(argv=argv, cwd=cwd, resume=False):
        if isinstance(event, StreamedOutput):
            printed[event.stream] += event.data
            if (tell := told[event.stream]) is not None:
                tell(event.text)
        elif isinstance(event, ExitData):
            return event, printed
    raise ContainerError("the stream of the command has no end")


def _of_file(error: PaddockError) -> Exception:
    if isinstance(error, NotFoundError):
        return FileNotFoundError(error.detail)
    kind = SecurityError if isinstance(error, PermissionDeniedError) else ContainerError
    return kind(explained(error))  # type: ignore[no-any-return]
