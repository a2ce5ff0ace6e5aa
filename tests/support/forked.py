"""Programs of this clone, started by a Python that has imported them: see `forker.py`."""

import asyncio
import atexit
import functools
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.support.sources import ROOT


@functools.cache
def forker() -> str:
    """The address of the Python that forks, one for this process; it ends with it."""
    name = f"paddock-forker-{secrets.token_hex(8)}"
    process = subprocess.Popen(
        (sys.executable, "-m", "tests.support.forker", name),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(process.communicate)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"ready\n"
    return name


def in_a_shell(*words: str) -> tuple[str, ...]:
    """A command of any shell or process that is `python -m WORDS…`, with signals and streams."""
    stub = ROOT / "tests" / "support" / "forked_program.py"
    return sys.executable, "-IS", str(stub), forker(), *words


class Forked:
    """A running program, as `asyncio.subprocess.Process` has it; both its outputs are one."""

    def __init__(self, connection: socket.socket, pid: int, stdout: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._connection = connection
        self._ending = asyncio.create_task(self._end())

    async def wait(self) -> int:
        """Waits for its end; returns its exit status, negative for a signal."""
        return await asyncio.shield(self._ending)

    async def communicate(self) -> tuple[bytes, None]:
        """Waits for its end; returns what it printed and nobody has read."""
        output = await self.stdout.read()
        await self.wait()
        return output, None

    def send_signal(self, number: int) -> None:
        """Sends it, unless the program has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _end(self) -> int:
        with self._connection:
            said = await asyncio.get_running_loop().sock_recv(self._connection, 16)
        self.returncode = int(said)
        return self.returncode


async def fork(*words: str, cwd: Path, env: Mapping[str, str]) -> Forked:
    """Starts `python -m WORDS…`."""
    address = await asyncio.to_thread(forker)
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    await loop.sock_connect(connection, f"\0{address}")
    read, write = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    asked = json.dumps({"words": words, "env": dict(env), "cwd": str(cwd)})
    try:
        socket.send_fds(connection, [asked.encode()], [nothing, write, write])
    finally:
        os.close(nothing)
        os.close(write)
    stdout = asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(read, "rb")
    )
    return Forked(connection, int(await loop.sock_recv(connection, 16)), stdout)
