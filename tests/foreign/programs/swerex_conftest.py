"""Stands for the fixtures of SWE-ReX's own tests, which are not in its package.

They expect the server at the root of a port, so a forwarder puts the session's path before theirs.
"""

import os
import select
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from swerex.runtime.abstract import (
    BashAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
)
from swerex.runtime.remote import RemoteRuntime

# The session's handle, and its address.
TEST_API_KEY = os.environ["SWEREX_KEY"]
_ADDRESS = urlsplit(os.environ["SWEREX_URL"])
_SECONDS = 30.0


class _Action(BashAction):
    timeout: float | None = _SECONDS


class _Command(Command):
    timeout: float | None = _SECONDS


@dataclass
class RemoteServer:
    """Where the server is."""

    port: int

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-Key": TEST_API_KEY}


def _forward(client: socket.socket) -> None:
    """Passes on one connection, which brings one request."""
    with client, socket.create_connection((_ADDRESS.hostname, _ADDRESS.port)) as server:
        begun = b""
        while b"\r\n" not in begun:
            data = client.recv(65536)
            if not data:
                return
            begun += data
        server.sendall(begun.replace(b" /", f" {_ADDRESS.path}/".encode(), 1))
        others = {client: server, server: client}
        with suppress(OSError):
            while True:
                for source in select.select(list(others), [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    others[source].sendall(data)


def _accept(listener: socket.socket) -> None:
    with suppress(OSError):  # it is closed at the end
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_forward, args=(client,), daemon=True).start()


@pytest.fixture(scope="session")
def remote_server() -> Iterator[RemoteServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        yield RemoteServer(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
async def remote_runtime(remote_server: RemoteServer) -> AsyncIterator[RemoteRuntime]:
    runtime = RemoteRuntime(port=remote_server.port, auth_token=TEST_API_KEY, timeout=_SECONDS)
    yield runtime
    await runtime.close()


@pytest.fixture
async def runtime_with_default_session(
    remote_runtime: RemoteRuntime,
) -> AsyncIterator[RemoteRuntime]:
    await remote_runtime.create_session(CreateBashSessionRequest())
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())
