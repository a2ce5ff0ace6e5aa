"""Keys and sizes that a terminal of one's own passes on to a session's shell."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paddock.cli.terminal import shell_relay
from paddock.client import LiveTerminal, Session
from tests.support.limits import WAIT_SECONDS


class Shell:
    """A shell that ends once it gets a size."""

    def __init__(self) -> None:
        self.info = SimpleNamespace(id="pty-1", writable=True)
        self.exit = SimpleNamespace(reason="exited", exit_code=0)
        self.sizes: list[tuple[int, int]] = []
        self._resized = asyncio.Event()

    async def resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))
        self._resized.set()

    async def output(self) -> AsyncGenerator[bytes, None]:
        await self._resized.wait()
        yield b""

    async def close(self) -> None:
        pass


async def test_a_size_that_changes_while_the_shell_opens_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell, asked = Shell(), []

    async def live(pty: str | None, *, columns: int, rows: int) -> LiveTerminal:
        asked.append((columns, rows))
        monkeypatch.setattr(shell_relay, "terminal_size", lambda: (91, 29))
        return cast(LiveTerminal, shell)

    async def nothing_typed() -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""

    def never_told(_call: Callable[[], None]) -> AbstractContextManager[Any]:
        return nullcontext()

    monkeypatch.setattr(shell_relay, "terminal_size", lambda: (80, 24))
    monkeypatch.setattr(shell_relay, "raw_terminal", nullcontext)
    monkeypatch.setattr(shell_relay, "when_resized", never_told)
    monkeypatch.setattr(shell_relay, "keys", nothing_typed)
    session = SimpleNamespace(id="sess-1", terminals=SimpleNamespace(live=live))
    async with asyncio.timeout(WAIT_SECONDS):
        assert await shell_relay.attend(cast(Session, session), None) == 0
    assert (asked, shell.sizes) == ([(80, 24)], [(91, 29)])
