"""LangChain's standard tests of sandboxes: with a session, and with programs on this machine."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

import paddock
from paddock.integrations.deepagents import PaddockBackend

# The suite calls `python`, which the default image has by another name only.
_PATH = "/workspace/bin:/usr/local/bin:/usr/bin:/bin"
_LINK = "mkdir -p bin && ln -s /usr/bin/python3 bin/python"


class TestPaddock(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[Any]:
        with paddock.session(permission_level="high", env={"PATH": _PATH}) as session:
            assert session.shell(_LINK).ok
            yield PaddockBackend(session)


class Local(BaseSandbox):
    """What the suite says of the simplest backend that there is."""

    id = "local"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        done = subprocess.run(
            ("bash", "-c", command),
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        return ExecuteResponse(done.stdout, done.returncode)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path, self._write(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._read(path) for path in paths]

    def _write(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)
        return None

    def _read(self, path: str) -> FileDownloadResponse:
        known = {
            FileNotFoundError: "file_not_found",
            IsADirectoryError: "is_directory",
            PermissionError: "permission_denied",
        }
        if not path.startswith("/"):
            return FileDownloadResponse(path, None, "invalid_path")
        try:
            return FileDownloadResponse(path, Path(path).read_bytes())
        except tuple(known) as error:
            return FileDownloadResponse(path, None, known[type(error)])


class TestLocal(SandboxIntegrationTests):
    _root = ""

    @property
    def sandbox_root_dir(self) -> str:
        return self._root

    @pytest.fixture(scope="class")
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Local:
        directory = tmp_path_factory.mktemp("local")
        TestLocal._root = str(directory)
        return Local(directory)
