"""A container in which only the string rules restrict a command, and a trace of what it did."""

import json
import secrets
import shutil
import socket
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, Self

import docker

from tests.support.agent_code import AGENT_CODE

_PROGRAM = Path(__file__).parent / "traced"
_MODULE = "tests.support.traced"
# Nothing there takes this long unless it hangs.
_PATIENCE = 30.0


class Run(NamedTuple):
    """What one command did; `refused` is the reason if it was not started.

    `touched` has (kind, path), where kind is exec, read or write; `changed` lists the files outside
    the workspace that differ from before.
    """

    refused: str | None
    touched: list[tuple[str, str]] = []
    exit_code: int = 0
    output: str = ""
    program: str = ""
    changed: list[str] = []


class TracedBox:
    """One container at a time: root, no confinement, everything writable, every call traced."""

    def __init__(self, client: docker.APIClient, image: str) -> None:
        self._client = client
        self._image = image
        self._container: str | None = None
        self._link: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.renew()

    def renew(self) -> None:
        """Removes the container; the next command starts a new one."""
        if self._link is not None:
            self._link.close()
        if self._container is not None:
            self._client.remove_container(self._container, v=True, force=True)
        self._link = self._container = None

    def run(
        self,
        argv: list[str],
        commands: Collection[str],
        cwd: str = "/workspace",
        checked: bool = True,
        seconds: float = 0.5,
    ) -> Run:
        """Runs an allowed command in a fresh workspace.

        If `checked`, its operands are checked first and its words prepared, as the agent does. It
        is killed after so many seconds.
        """
        if self._link is None:
            self._link = self._open()
        request = {
            "argv": argv,
            "commands": sorted(commands),
            "cwd": cwd,
            "checked": checked,
            "seconds": seconds,
        }
        self._link.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._line(self._link))
        touched = [(kind, path) for kind, path in answer.pop("touched", [])]
        return Run(**answer, touched=touched)

    def _line(self, link: socket.socket) -> bytes:
        found = bytearray()
        while not found.endswith(b"\n"):
            piece = link.recv(1 << 16)
            if not piece:
                log = self._client.logs(self._container or "").decode()
                raise AssertionError(f"the tracer has ended: {log}")
            found += piece
        return bytes(found)

    def _open(self) -> socket.socket:
        # A socket's path is at most 108 bytes long.
        folder = tempfile.mkdtemp(prefix="paddock-traced-")
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"{folder}/link")
                listener.listen()
                listener.settimeout(_PATIENCE)
                self._start(folder)
                link, _ = listener.accept()
        finally:
            shutil.rmtree(folder)
        link.settimeout(_PATIENCE)
        return link

    def _start(self, folder: str) -> None:
        inner = f"/trial/{_MODULE.replace('.', '/')}"
        self._container = self._client.create_container(
            self._image,
            name=f"paddock-traced-{secrets.token_hex(4)}",
            entrypoint=["/usr/bin/python3", "-B", "-X", "utf8", "-m", _MODULE],
            command=["/link/link"],
            environment={"PYTHONPATH": "/trial"},
            host_config=self._client.create_host_config(
                network_mode="none",
                init=True,
                mem_limit="512m",
                pids_limit=64,
                tmpfs={"/workspace": "size=64m,mode=0777,exec"},
                binds=[f"{folder}:/link:ro", f"{_PROGRAM}:{inner}:ro", AGENT_CODE],
            ),
        )["Id"]
        self._client.start(self._container)
