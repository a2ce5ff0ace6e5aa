"""`paddock repl` with the API on a real port: piped, and typed at a terminal."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.exits import Status
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.slow

POLICY: dict[str, Any] = {
    "allowed_operations": ["world.read", "world.run"],
    "denied_operations": [],
    "execution_rules": {"allow_shell_commands": True, "allow_network_calls": True},
}


@pytest.fixture(autouse=True)
def environment(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


class Terminal:
    """The other end of a prompt's terminal."""

    def __init__(self, reader: asyncio.StreamReader, file: int) -> None:
        self._reader = reader
        self._file = file
        self.seen = ""

    def type(self, text: str) -> None:
        """Types it."""
        os.write(self._file, text.encode())

    async def shows(self, text: str) -> None:
        """Waits for it after what was waited for before."""
        while text not in self.seen:
            read = await self._reader.read(4096)
            assert read, self.seen
            self.seen += read.decode()
        self.seen = self.seen.partition(text)[2]


@asynccontextmanager
async def prompt(session: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Terminal]]:
    """A prompt at a terminal of its own."""
    mine, its = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _AT_TERMINAL, session), stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(mine), "rb", 0)
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield process, Terminal(reader, mine)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()
        os.close(mine)


# The terminal is its controlling one, so that Ctrl-C reaches it.
_AT_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.environ["TERM"] = "dumb"
from paddock.cli import main
sys.exit(main(["repl", sys.argv[1]]))
"""


async def test_forms_are_piped_into_it(api: Api) -> None:
    await api.session(id="web-1")
    text = b'(define (twice x)\n  (* 2 x)) ; no (\n(twice 21) "a\nb"\n'
    ended = await run_beside("repl", "web-1", stdin=text)
    assert (ended.status, ended.out) == (Status.OK, "twice\n42\na\nb\n"), ended.err
    assert "turn 3: ok" in ended.err
    failed = await run_beside("repl", "web-1", stdin=b'(world.read ".env")\n')
    assert failed.status == Status.FAILED
    assert "policy-violation: Read not allowed: .env" in failed.err
    # What follows a failure runs, and the last one counts.
    mixed = await run_beside("repl", "web-1", stdin=b")\n(+ 1 2)")
    assert (mixed.status, mixed.out) == (Status.OK, "3\n")
    cut = await run_beside("repl", "web-1", stdin=b"(+ 1\n")
    assert cut.status == Status.USAGE
    assert "ends within a form" in cut.err
    lines = await run_beside("repl", "web-1", "--json", stdin=b"1\n")
    assert '"tag":"ok"' in lines.out
    assert (await run_beside("repl", "nobody", stdin=b"1\n")).status == Status.NOT_FOUND


async def test_a_refused_turn_is_shown_and_the_next_form_is_read(api: Api) -> None:
    await api.session(id="web-1", budget={"iterations": 1})
    ended = await run_beside("repl", "web-1", stdin=b"1\n2\n3\n")
    assert ended.status != Status.OK
    assert ended.out == "1\n"
    assert "nonconverged" in ended.err


async def interrupted(terminal: Terminal, text: str) -> None:
    """Types Ctrl-C until the text is shown: just before readline waits, one goes unnoticed."""
    for _ in range(10):
        terminal.type("\x03")
        with suppress(TimeoutError):
            async with asyncio.timeout(3):
                return await terminal.shows(text)
    raise AssertionError("Ctrl-C does nothing")


async def test_a_person_types_interrupts_and_ends(api: Api, tmp_path: Path) -> None:
    await api.session(id="web-1", permission_level="high", policy=POLICY)
    api.agent.plays["sleep"] = Play(holds=True)
    async with prompt("web-1") as (process, terminal):
        await terminal.shows("web-1> ")
        terminal.type("(+ 40\n")
        await terminal.shows(".... ")
        terminal.type("\n")
        await terminal.shows(".... ")
        terminal.type("2)\n")
        await terminal.shows("turn 1: ok")
        await terminal.shows("web-1> ")
        terminal.type("(forgotten\n")
        await terminal.shows(".... ")
        await interrupted(terminal, "web-1> ")
        terminal.type('(string-leng\t "four")\n')
        await terminal.shows("turn 2: ok")
        await terminal.shows("web-1> ")
        terminal.type('(world.run "sleep 60")\n')
        await api.agent.asked("exec")
        terminal.type("\x03")
        await terminal.shows("interrupted")
        await terminal.shows("web-1> ")
        terminal.type("\x04")
        assert await process.wait() == 0
    history = tmp_path / "paddock" / "repl_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert '(world.run "sleep 60")' in history.read_text()
