"""A session in a real container, with operations for tests."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from api.views.commands import exit_members
from api.views.sessions import session as view
from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.base import Container
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.command import Command
from orchestrator.state.requests import ExecRequest
from orchestrator.state.session import Session
from orchestrator.work.commands import running_command
from orchestrator.work.files.file_archives import ArchiveDownload, ArchiveSummary
from orchestrator.work.files.file_entries import FileEntry, Listing
from paddock.contract import sessions as shown
from tests.support.host_processes import host_processes
from tests.support.limits import PROGRAM_SECONDS
from tests.support.new_session import new_session

TESTER = Principal("tester", Role.ADMIN)
# Nothing here takes this long unless it hangs.
PATIENCE = float(PROGRAM_SECONDS)


@dataclass(frozen=True)
class Outcome:
    """A command's result, with all kept output."""

    command: Command
    exit: dict[str, Any]
    stdout: str
    stderr: str

    @property
    def exit_code(self) -> int | None:
        """The exit code as in a shell: 128 plus the signal's number for a signal."""
        code: int | None = self.exit["exit_code"]
        return code

    @property
    def value(self) -> Any:
        """The output parsed as JSON: a script's report about the inside of the sandbox."""
        assert self.exit_code == 0, (self.exit, self.stdout, self.stderr)
        return json.loads(self.stdout)


class Box:
    """One session of a control plane."""

    def __init__(self, plane: ControlPlane, session: Session) -> None:
        self.plane = plane
        self.session = session

    @classmethod
    async def create(cls, plane: ControlPlane, level: str, **members: Any) -> "Box":
        """A new session at that level."""
        request = new_session(permission_level=level, **members)
        async with asyncio.timeout(PATIENCE):
            session, *_ = await plane.sessions.create(TESTER, request)
        return cls(plane, session)

    async def close(self) -> None:
        """Ends the session and removes its workspace."""
        async with asyncio.timeout(PATIENCE):
            await self.plane.sessions.close(TESTER, self.session, purge=True)

    def shown(self) -> shown.Session:
        """The session in the API's form."""
        return view(self.session, live=True)

    # Commands

    async def start(
        self, command: str | None = None, *, argv: list[str] | None = None, **more: Any
    ) -> Command:
        """Starts a command."""
        if isinstance(more.get("stdin"), str):
            more["stdin"] = more["stdin"].encode()
        request = ExecRequest(command=command, argv=argv, **more)
        return await self.plane.executions.start(TESTER, self.session, request)

    async def run(
        self, command: str | None = None, *, argv: list[str] | None = None, **more: Any
    ) -> Outcome:
        """Runs a command to its end."""
        return await self.finish(await self.start(command, argv=argv, **more))

    async def finish(self, command: Command) -> Outcome:
        """Waits for a command's end, and reads its output."""
        async with asyncio.timeout(PATIENCE):
            result = await self.plane.executions.wait(self.session, command)
        output = {"stdout": b"", "stderr": b""}
        async for stream, _, data in self.output(command):
            output[stream] += data
        stdout, stderr = (output[name].decode(errors="replace") for name in ("stdout", "stderr"))
        return Outcome(command, exit_members(result), stdout, stderr)

    async def python(self, source: str, *arguments: str, **more: Any) -> Outcome:
        """Runs a Python script (at high)."""
        return await self.run(argv=["python3", "-c", source, *arguments], **more)

    async def bash(self, script: str, **more: Any) -> Outcome:
        """Runs a shell script (at high)."""
        return await self.run(argv=["bash", "-c", script], **more)

    async def output(
        self, command: Command, after: int = 0
    ) -> AsyncIterator[tuple[str, int, bytes]]:
        """A command's live output, to the end."""
        while True:
            page = await running_command.read_output(self.session, command, after, 5.0)
            for chunk in page.chunks:
                yield chunk
            if page.lost or (page.ended and page.next == after):
                return
            after = page.next

    async def printed(self, command: Command, text: str) -> str:
        """The output so far, as soon as it contains `text`."""
        said = b""
        async with asyncio.timeout(PATIENCE):
            async for _, _, data in self.output(command):
                said += data
                if text.encode() in said:
                    return said.decode()
        raise AssertionError(f"it ended without saying {text!r}: {said!r}")

    async def feed(self, command: Command, data: bytes, *, close: bool = False) -> None:
        """Sends input to a command."""
        await running_command.feed(self.session, command, data, close)

    async def signal(self, command: Command, number: int) -> None:
        """Signals a command."""
        await running_command.signal(self.session, command, number)

    async def cancel(self, command: Command) -> Outcome:
        """Simulates that a command's client disconnects, and waits for the command's end."""
        await self.plane.executions.client_gone(self.session, command)
        return await self.finish(command)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a request directly to the agent."""
        assert self.session.sandbox is not None
        return await self.session.sandbox.link.request(method, params)

    # Files

    async def write(
        self,
        path: str,
        *chunks: bytes,
        mode: str = "overwrite",
        permissions: int | None = None,
        parents: bool = False,
    ) -> int:
        """Writes a file; returns the number of bytes."""

        async def pieces() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return await self.plane.files.write(
            TESTER, self.session, path, mode, pieces(), permissions, parents=parents
        )

    async def read(self, path: str) -> bytes:
        """A file's content."""
        download = await self.plane.files.read(TESTER, self.session, path)
        try:
            return b"".join([chunk async for chunk in download.chunks()])
        finally:
            await download.close()

    async def unpack(self, data: bytes, path: str = ".", kind: str = "tar") -> ArchiveSummary:
        """Unpacks an archive."""

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 100_000):
                yield data[start : start + 100_000]

        return await self.plane.file_archives.unpack(TESTER, self.session, path, kind, pieces())

    async def pack(self, path: str = ".", kind: str = "tar") -> tuple[bytes, ArchiveDownload]:
        """A directory's archive, and what was said of it."""
        download = await self.plane.file_archives.pack(TESTER, self.session, path, kind)
        try:
            return b"".join([chunk async for chunk in download.chunks()]), download
        finally:
            await download.close()

    async def listing(self, path: str = ".", depth: int = 1) -> Listing:
        """A listing."""
        return await self.plane.files.list(TESTER, self.session, path, depth)

    async def paths(self, path: str = ".", depth: int = 1) -> list[str]:
        """The paths in a listing."""
        return [entry.path for entry in (await self.listing(path, depth)).entries]

    async def mkdir(self, path: str) -> None:
        """Creates a directory."""
        await self.plane.files.mkdir(TESTER, self.session, path)

    async def delete(self, path: str) -> None:
        """Removes something."""
        await self.plane.files.delete(TESTER, self.session, path)

    async def move(self, source: str, destination: str) -> None:
        """Renames something."""
        await self.plane.files.move(TESTER, self.session, source, destination)

    async def stat(self, path: str) -> FileEntry:
        """One entry."""
        return await self.plane.files.stat(TESTER, self.session, path)

    # Seen from the host

    @property
    def workspace(self) -> Path:
        """The workspace on the host."""
        return Path(self.session.root_dir)

    @property
    def uid(self) -> int:
        """The session's uid, which no other session has."""
        return self.session.workspace.uid

    @property
    def container_id(self) -> str:
        """The container's id."""
        assert self.session.sandbox is not None
        return self.session.sandbox.container_id

    async def container(self) -> Container:
        """The engine's description of the container."""
        found = await self.plane.engine.inspect(self.container_id)
        assert found is not None
        return found

    def processes(self) -> list[psutil.Process]:
        """Every process of the session's uid on the host, zombies included."""
        return [process for process in host_processes() if _uid(process) == self.uid]

    def process(self, argv: list[str]) -> psutil.Process:
        """The process of a running command on the host."""
        (found,) = [process for process in self.processes() if _argv(process) == argv]
        return found

    def agent(self) -> psutil.Process:
        """The sandbox agent's process on the host."""
        for process in host_processes():
            if _container_of(process) == self.container_id and inner_pid(process) == 1:
                return process
        raise AssertionError("the agent is gone")

    # On record

    async def events(self, operation: str | None = None, **more: Any) -> list[dict[str, Any]]:
        """The session's events, oldest first."""
        return await query.events(
            self.plane.database, self.session.key, operation=operation, limit=100_000, **more
        )

    async def event(self, *operations: str) -> dict[str, Any]:
        """Waits for the first event of one of these operations."""
        seq = 0
        async with asyncio.timeout(PATIENCE):
            while not (found := [each for name in operations for each in await self.events(name)]):
                seq = await self.plane.ledger.wait(self.session.key, seq)
        return found[0]


async def ended(process: psutil.Process) -> None:
    """Waits until a process on the host is gone."""
    await asyncio.to_thread(process.wait, PATIENCE)


def status_of(process: psutil.Process) -> dict[str, str]:
    """`/proc/PID/status` of a process on the host, by member."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return {name: value.strip() for name, _, value in _pairs(text)}


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    return (line.partition(":") for line in text.splitlines())


def mount_options(process: psutil.Process) -> dict[str, set[str]]:
    """The mount options by mount point in a process's mount namespace."""
    lines = Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()
    return {line.split()[4]: set(line.split()[5].split(",")) for line in lines}


def _uid(process: psutil.Process) -> int | None:
    try:
        return process.uids().real
    except psutil.NoSuchProcess:
        return None


def _argv(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _container_of(process: psutil.Process) -> str | None:
    try:
        return container_in(Path(f"/proc/{process.pid}/cgroup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def container_in(cgroups: str) -> str | None:
    """The container of a process in these control groups, whichever driver has named them."""
    found = re.search(r"[/-]([0-9a-f]{64})(\.scope)?(/|$)", cgroups, re.MULTILINE)
    return None if found is None else found[1]


def inner_pid(process: psutil.Process) -> int:
    """A process's pid as its sandbox's commands see it."""
    return int(status_of(process)["NSpid"].split()[-1])
