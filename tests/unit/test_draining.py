"""A node that is drained asks a busy session again when something of it has ended."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.ground.errors import BusyError
from orchestrator.operate.moves import draining
from orchestrator.operate.moves.draining import Draining
from tests.support.until import until


class Mover:
    """Moves a session unless it is busy."""

    def __init__(self) -> None:
        self.busy = True
        self.asked = 0

    async def nodes(self) -> list[object]:
        return []

    async def move(self, session: Any, node: str) -> None:
        self.asked += 1
        if self.busy:
            raise BusyError("commands run in the session")
        session.live = False


@pytest.fixture(autouse=True)
def _only_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time alone asks nobody again, and there is always a node."""
    monkeypatch.setattr(draining, "_AGAIN_SECONDS", 1e6)
    monkeypatch.setattr(draining, "unmovable", lambda session: None)
    monkeypatch.setattr(draining, "best_target", lambda *_: SimpleNamespace(name="two"))


async def test_the_end_of_what_kept_it_is_what_asks_again() -> None:
    session: Any = SimpleNamespace(
        id="box",
        key="key-box",
        live=True,
        family=SimpleNamespace(parent=None),
        level=SimpleNamespace(name="low"),
        terms=SimpleNamespace(image=None),
    )
    sessions: Any = SimpleNamespace(registry=SimpleNamespace(live=[session]))
    commits: list[Any] = []

    def on_commit(listener: Any) -> Any:
        commits.append(listener)
        return commits.clear

    ledger: Any = SimpleNamespace(on_commit=on_commit)
    mover: Any = Mover()
    drain = asyncio.ensure_future(
        Draining("one", sessions, mover, ledger).run(seconds=1e6, ends=False)
    )

    def happens(key: str, operation: str) -> None:
        (commit,) = commits
        commit([SimpleNamespace(session_key=key, operation=operation)])

    async def asked(times: int) -> None:
        """So often, and not more often after everything that was to be done."""
        await until(lambda: mover.asked >= times)
        for _ in range(20):
            await asyncio.sleep(0)
        assert mover.asked == times

    await asked(1)
    for key, operation in (("key-other", "command.exit"), ("key-box", "command.start")):
        happens(key, operation)
    await asked(1)
    happens("key-box", "command.exit")
    await asked(2)
    commits[0](None)  # nobody knows what it was
    await asked(3)
    mover.busy = False
    happens("key-box", "pty.close")
    drained = await drain
    assert (drained.moved, drained.stayed) == (1, {})
    assert mover.asked == 4
    assert not commits  # nobody listens any more
