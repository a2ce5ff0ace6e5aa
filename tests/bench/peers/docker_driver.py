"""The engine alone, through its Python SDK: nothing governs the commands."""

import asyncio
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import docker

from tests.bench.peers.driver import ANSWER, AT_ONCE, LINE, Options, require

_SECONDS = 60
_PROMPT = b">>> "


class DockerSandbox:
    """A container, usually without a network."""

    def __init__(self, client: docker.APIClient, image: str, network: str) -> None:
        self._client = client
        self._python: Any = None
        made = client.create_container(
            image,
            entrypoint=["sleep", "infinity"],
            host_config=client.create_host_config(network_mode=network),
        )
        self.container: str = made["Id"]
        client.start(self.container)

    async def run(self, program: str) -> None:
        """By `docker exec`, with the exit code."""
        await asyncio.to_thread(self._execute, program)

    async def line(self) -> None:
        """On an attached terminal."""
        await asyncio.to_thread(self._line)

    async def send_file(self, local: Path) -> None:
        """As an archive in memory, as `docker cp` does."""
        await asyncio.to_thread(self._send, local, "file")

    async def fetch_file(self, local: Path) -> None:
        """From an archive."""
        await asyncio.to_thread(self._fetch, "/tmp/file", local.parent)
        (local.parent / "file").rename(local)

    async def send_tree(self, local: Path) -> None:
        """As an archive in memory."""
        await asyncio.to_thread(self._send, local, "tree")

    async def fetch_tree(self, local: Path) -> None:
        """From an archive."""
        await asyncio.to_thread(self._fetch, "/tmp/tree", local)

    async def close(self) -> None:
        """Removes the container by force."""
        if self._python is not None:
            self._python.close()
        await asyncio.to_thread(self._client.remove_container, self.container, v=True, force=True)

    def _execute(self, program: str) -> None:
        made = self._client.exec_create(self.container, [program])
        self._client.exec_start(made["Id"])
        status = self._client.exec_inspect(made["Id"])["ExitCode"]
        require(status == 0, f"docker exec of {program} ended with {status}")

    def _line(self) -> None:
        if self._python is None:
            argv = ["python3", "-I", "-S", "-q"]
            made = self._client.exec_create(self.container, argv, stdin=True, tty=True)
            attached: Any = self._client.exec_start(made["Id"], tty=True, socket=True)
            self._python = attached._sock
            self._prompt()
        self._python.sendall(LINE.encode() + b"\n")
        require(ANSWER.encode() in self._prompt(), "the line's answer")

    def _prompt(self) -> bytes:
        said = b""
        while not said.endswith(_PROMPT):
            said += self._python.recv(65_536)
        return said

    def _send(self, local: Path, name: str) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(local, arcname=name)
        self._client.put_archive(self.container, "/tmp", packed.getvalue())

    def _fetch(self, path: str, local: Path) -> None:
        pieces, _ = self._client.get_archive(self.container, path)
        os.makedirs(local, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            archive.extractall(local, filter="data")


class DockerDriver:
    """Containers of one image."""

    def __init__(self, options: Options) -> None:
        self._image = options.image
        self._network = options.network
        self._client = docker.APIClient(version="auto", timeout=_SECONDS, max_pool_size=AT_ONCE)

    async def create(self) -> DockerSandbox:
        """Creates and starts a container."""
        return await asyncio.to_thread(DockerSandbox, self._client, self._image, self._network)

    async def close(self) -> None:
        """Closes the connections to the engine."""
        self._client.close()
