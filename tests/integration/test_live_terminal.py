"""Live terminals with real sandboxes: what is typed, shown, recorded and ended."""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import pytest_asyncio
from aiohttp import WSServerHandshakeError

from orchestrator.work.terminals.evidence_files import RECORDING_NAME
from paddock import Paddock, Session
from tests.support.box import PATIENCE
from tests.support.live import LiveViewer, live
from tests.support.server import Server, leaving_nothing
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(sandbox_image: str) -> AsyncIterator[Server]:
    """A server; at its end, nothing that the sessions made is left."""
    async with leaving_nothing(PADDOCK_IMAGE=sandbox_image) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(server: Server) -> AsyncIterator[Session]:
    async with Paddock(server.url, server.key) as paddock:
        made = await paddock.sessions.create(
            permission_level="high", env={"COLOUR": "green"}, secrets={"TOKEN": "hidden-value-1"}
        )
        yield made
        await made.close(purge=True)


def viewer(
    server: Server, session: Session, **query: Any
) -> AbstractAsyncContextManager[LiveViewer]:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    path = f"/api/sessions/{session.id}/terminal?{words}"
    return live(server.client, path)


class OwnTerminal:
    """`paddock …` on a terminal of its own, whose settings are the same afterwards."""

    def __init__(self, server: Server, *arguments: str) -> None:
        self.shown = ""
        self._master, self._slave = os.openpty()
        self._before = termios.tcgetattr(self._slave)
        self._process = subprocess.Popen(
            (sys.executable, "-m", "paddock", *arguments),
            env={**os.environ, "PADDOCK_URL": server.url, "PADDOCK_KEY": server.key},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        after = termios.tcgetattr(self._slave)
        os.close(self._slave)
        os.close(self._master)
        assert after == self._before

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, size)
        # It is not the program's controlling terminal.
        self._process.send_signal(signal.SIGWINCH)

    async def type(self, text: str) -> None:
        await asyncio.to_thread(os.write, self._master, text.encode())

    async def until(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while text not in self.shown:
                data = await asyncio.to_thread(os.read, self._master, 65536)
                self.shown += data.decode(errors="replace")

    async def end(self) -> int:
        """The exit status, once everything is shown."""
        status = await asyncio.to_thread(self._process.wait, PATIENCE)
        os.set_blocking(self._master, False)
        with suppress(BlockingIOError):
            while True:
                self.shown += os.read(self._master, 65536).decode(errors="replace")
        return status


async def recording(server: Server, session: Session, pty: str) -> str:
    path = f"/api/sessions/{session.id}/ptys/{pty}/recording"
    async with server.client.get(path) as response:
        assert (response.status, response.content_type) == (200, "application/x-asciicast")
        return await response.text()


async def shown(server: Server, session: Session, pty: str) -> dict[str, Any]:
    async with server.client.get(f"/api/sessions/{session.id}/ptys/{pty}") as response:
        found: dict[str, Any] = await response.json()
        return found


async def set_level(server: Server, session: Session, level: str) -> None:
    body = {"settings": {"permission_level": level}}
    async with server.client.put(f"/api/sessions/{session.id}/settings", json=body) as response:
        assert response.status == 200, await response.text()


def played(text: str) -> tuple[dict[str, Any], list[tuple[float, str, str]]]:
    """The header and events of a recording, read as strictly as its format says."""
    header, *lines = [json.loads(line) for line in text.splitlines()]
    assert header["version"] == 2
    assert all(isinstance(header[name], int) for name in ("width", "height", "timestamp"))
    for line in lines:
        moment, kind, data = line
        assert isinstance(moment, int | float)
        assert kind in ("o", "i", "r")
        assert isinstance(data, str)
        assert kind != "r" or re.fullmatch(r"\d+x\d+", data)
    moments = [line[0] for line in lines]
    assert moments == sorted(moments)
    return header, [tuple(line) for line in lines]


async def test_a_shell_of_a_session(server: Server, session: Session) -> None:
    async with viewer(server, session, cols=100, rows=30) as one:
        await one.until("$ ")
        await one.type("stty size; echo $COLOUR $TERM; id -u | wc -c; pwd\r")
        text = await one.until("/workspace\r")
        assert "30 100\r\ngreen xterm-256color\r\n11\r\n/workspace" in text
        await one.resize(120, 40)
        await one.type("stty size; echo got $TOKEN; echo é\r")
        assert "40 120\r\ngot hidden-value-1\r\né\r" in await one.until("\né\r")
        # The kernel's line editing and job control work, and the level's confinement holds.
        await one.type("echo ru''ns; cat\r")
        await one.until("runs\r")  # the line is not edited by the shell any more
        await one.type("ping\r")
        await one.until("ping\r\nping\r")
        await one.type("\x03")
        await one.until("$ ", after="^C")  # what comes before it, `cat` may read
        await one.type("echo $?; touch /etc/x; kill -0 1\r")
        text = await one.until("kill: (1)")
        assert "\r130\r\n" in text
        assert "Read-only file system" in text
        # Another viewer sees what is there, and both see what follows.
        async with viewer(server, session, pty=one.terminal["id"]) as two:
            assert "40 120" in await two.until("kill: (1)")
            await two.type("echo from two\r")
            await one.until("\rfrom two\r")
            await two.until("\rfrom two\r")
        await one.type("kept=here\r")
    # It stays while nobody is attached, with all that it knows.
    async with viewer(server, session, pty=one.terminal["id"]) as again:
        await again.type("echo still $kept\r")
        await again.until("\rstill here\r")
        await again.type("exit 3\r")
        assert await again.end() == {"exit": {"exit_code": 3, "signal": None, "reason": "exited"}}
        assert again.closed is not None
        assert again.closed[0] == 1000

    info = await shown(server, session, one.terminal["id"])
    assert (info["kind"], info["exit_code"], info["reason"]) == ("shell", 3, "exited")
    text = await recording(server, session, info["id"])
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert info["evidence"]["recording_hash"] == digest
    header, events = played(text)
    assert (header["width"], header["height"]) == (100, 30)
    assert ("r", "120x40") in [event[1:] for event in events]
    printed = "".join(data for _, kind, data in events if kind == "o")
    typed = "".join(data for _, kind, data in events if kind == "i")
    assert "still here" in printed
    assert typed.endswith("exit 3\r")
    assert "\x03" in typed
    assert "hidden-value-1" not in text
    (closed,) = [event async for event in session.audit.events(operation="pty.close")]
    assert (closed.result or {})["recording_hash"] == digest
    programs = [event async for event in session.audit.events(operation="command.exec")]
    assert "stty" in {str((event.args.get("argv") or [""])[0]) for event in programs}
    assert (await session.audit.verify()).ok


@pytest.mark.parametrize("level", ["low", "medium"])
async def test_no_shell_where_only_some_commands_are_permitted(server: Server, level: str) -> None:
    async with Paddock(server.url, server.key) as paddock:
        made = await paddock.sessions.create(permission_level=level)
        with pytest.raises(WSServerHandshakeError) as failure:
            async with viewer(server, made):
                pass
        assert failure.value.status == 403
        listed = await made.terminals.list()
        assert listed == ()
        await made.close(purge=True)


def memory(*pids: int) -> list[int]:
    """Their bytes."""
    return [psutil.Process(pid).memory_info().rss for pid in pids]


async def test_who_does_not_read_costs_no_memory(server: Server, session: Session) -> None:
    async with viewer(server, session) as deaf:
        await deaf.until("$ ")
        programs = (await session.refresh()).processes or []
        agent = next(each.host_pid for each in programs if each.pid == 1)
        await session.exec(shell="mkfifo full more")
        before = memory(server.pid, agent)
        part = "head -c {} /dev/zero | tr '\\0' x"
        first, rest = part.format(25 * 1024 * 1024), part.format(75 * 1024 * 1024)
        await deaf.type(f"stty -opost; {first}; echo > full; cat more; {rest}; exit\r")
        await session.exec(shell="cat full")
        full = memory(server.pid, agent)
        await session.exec(shell="echo > more")
        async with aclosing(session.events()) as events:
            async for event in events:
                if event.args.get("terminal_id") == deaf.terminal["id"] and event.result:
                    break  # it has ended
        # What is kept at most, and what runs for the first time, takes some; further output none.
        after = memory(server.pid, agent)
        assert after[0] - before[0] < 24 * 1024 * 1024
        assert after[1] - before[1] < 8 * 1024 * 1024
        assert after[1] - full[1] < 2 * 1024 * 1024
        # It gets the end of the output, and is told what is missing.
        end = await deaf.end()
        assert end["exit"]["exit_code"] == 0
        missing = sum(frame.get("lost", 0) for frame in deaf.told)
        assert missing > 50 * 1024 * 1024
        assert missing + len(deaf.output) >= 100 * 1024 * 1024
    info = await shown(server, session, deaf.terminal["id"])
    evidence = info["evidence"]
    assert evidence["recording_truncated"]
    assert 60 * 1024 * 1024 < evidence["recording_bytes"] <= 80 * 1024 * 1024


async def test_the_command_line_attaches_and_detaches(server: Server, session: Session) -> None:
    with OwnTerminal(server, "shell", session.id) as first:
        await first.until("$ ")
        first.resize(91, 29)
        # What is typed may be read before the new size.
        await first.type("until stty size | grep -x '29 91'; do :; done; kept=here\r")
        await first.until("\r29 91\r")
        await first.type("\x1d")
        assert await first.end() == 0
        assert f"paddock shell {session.id} --pty pty-" in first.shown
    with OwnTerminal(server, "shell", session.id, "--last") as again:
        await again.until("29 91")  # what is still held
        await again.type("echo still $kept\r")
        await again.until("\rstill here\r")
        await again.type("exit 7\r")
        assert await again.end() == 7
    with OwnTerminal(server, "shell", session.id, "--last") as none:
        assert await none.end() == 5
        assert "no shell is open" in none.shown


async def test_a_tool_is_watched_and_recorded(server: Server, session: Session) -> None:
    terminal = await session.terminals.open("python3")
    async with viewer(server, session, pty=terminal.id) as watcher:
        assert watcher.terminal["kind"] == "tool"
        assert watcher.terminal["writable"] is False
        assert watcher.terminal["cols"] <= 500
        await watcher.until(">>> ")
        await terminal.send("calculate", "6 * 7")
        assert "6 * 7" in await watcher.until("\n42\r")
        await watcher.type("1 + 1\r")
        await watcher.end()
        assert watcher.closed is not None
        assert watcher.closed[0] == 1008
    await terminal.close()
    text = await recording(server, session, terminal.id)
    _, events = played(text)
    assert [data for _, kind, data in events if kind == "i"] == ["6 * 7\n"]
    assert "42" in "".join(data for _, kind, data in events if kind == "o")


def recorded(state_dir: Path, text: str) -> bool:
    files = (state_dir / "evidence").rglob(RECORDING_NAME)
    return any(f"{text}\\r\\n" in each.read_text() for each in files)


async def test_a_shell_ends_with_its_session_its_level_and_its_control_plane(
    server: Server,
) -> None:
    async with Paddock(server.url, server.key) as paddock:
        made = await paddock.sessions.create(permission_level="high")
        async with viewer(server, made) as one:
            await one.until("$ ")
            await one.type("sleep 1234 &\r")
            await set_level(server, made, "medium")
            assert (await one.end())["exit"]["reason"] == "level_changed"
        await set_level(server, made, "high")
        async with viewer(server, made) as two:
            await two.until("$ ")
            await two.type("echo before; sleep 4321\r")
            await two.until("\rbefore\r")
            # A viewer does not wait for the disk.
            await until(lambda: recorded(server.state_dir, "before"))
            await server.kill()
        await server.start()
    async with Paddock(server.url, server.key) as paddock:
        made = await paddock.sessions.get(made.id)
        info = await shown(server, made, two.terminal["id"])
        assert (info["status"], info["reason"]) == ("terminated", "control_plane_restarted")
        text = await recording(server, made, info["id"])
        _, events = played(text)
        assert "before" in "".join(data for _, kind, data in events if kind == "o")
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        assert info["evidence"]["recording_hash"] == digest
        # Nothing of it runs any more: its end was on record before the answer.
        processes = (await made.refresh()).processes or []
        assert not [each for each in processes if "4321" in each.argv]
        async with viewer(server, made) as three:
            await three.until("$ ")
            await made.close(purge=True)
            assert (await three.end())["exit"]["reason"] == "session_ended"
