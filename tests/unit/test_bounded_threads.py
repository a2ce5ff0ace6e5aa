"""Hanging calls at the end of sandboxes use few threads and do not prevent the end."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.threads import Threads
from orchestrator.host.engine.base import Container, ContainerState
from orchestrator.host.node import local_node
from orchestrator.host.node.local_node import LocalNode
from orchestrator.host.workspace.freezing import Freezes
from orchestrator.host.workspace.quota import Choice, Quota
from orchestrator.host.workspace.storage import Storage
from orchestrator.sandbox.sandboxes.agent_parts import HelloPart
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.settings.settings import Settings
from orchestrator.state.directory import SandboxDirectory
from orchestrator.state.sandbox import Sandbox
from orchestrator.work.terminals import terminal_ends
from orchestrator.work.terminals.terminal_ends import TerminalEnds
from orchestrator.work.terminals.terminal_record import TerminalRecord, TerminalRow
from tests.support.limits import WAIT_SECONDS
from tests.support.tool import spec

SANDBOXES = 40


class Hanging:
    """Calls that hang until the expected maximum of them run at once."""

    def __init__(self, most: int) -> None:
        self.calls = self.highest = 0
        self._most = most
        self._now = 0
        self._lock = threading.Lock()
        self._full = threading.Event()

    def __call__(self, *_: object, **__: object) -> None:
        with self._lock:
            self.calls += 1
            self._now += 1
            self.highest = max(self.highest, self._now)
            if self._now == self._most:
                self._full.set()
        assert self._full.wait(WAIT_SECONDS)
        with self._lock:
            self._now -= 1


async def test_releases_that_hang_take_few_threads(tmp_path: Path) -> None:
    release = Hanging(4)
    directories = SandboxDirectories()
    hanging = [SandboxDirectory(tmp_path / str(number)) for number in range(SANDBOXES)]
    await asyncio.gather(*(directories.remove(directory, release) for directory in hanging))
    assert release.calls == SANDBOXES
    assert release.highest == 4


async def test_kills_that_hang_take_few_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kill = Hanging(16)
    monkeypatch.setattr(local_node, "kill_all", kill)

    class Broken:
        """An engine that fails to freeze."""

        async def pause(self, _container: str) -> None:
            raise EngineUnavailableError("no")

    storage = SimpleNamespace(choice=Choice(Quota.NONE, ()))
    stops = Stopper(LocalNode(tmp_path, cast(Any, Broken()), cast(Any, storage)))
    held = [
        cast(
            Sandbox,
            SimpleNamespace(
                **{"name": "x", "container_id": "c", "first": None, "freezing": None},
                **{"shut_off": list, "freezes": Freezes()},
            ),
        )
        for _ in range(SANDBOXES)
    ]
    frozen = await asyncio.gather(*(stops.freeze(sandbox) for sandbox in held))
    assert not any(frozen)
    assert kill.calls >= SANDBOXES
    assert kill.highest == 16


async def test_a_first_process_that_can_not_be_looked_at_is_not_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    release = threading.Event()

    class Engine:
        async def inspect(self, container_id: str) -> Container:
            return Container(container_id, "x", {}, ContainerState.RUNNING, pid=1)

    def hang(*_: object) -> None:
        release.wait()

    monkeypatch.setattr(local_node, "first_process", hang)
    monkeypatch.setattr(local_node, "_LOOK_SECONDS", 0.05)
    storage = Storage(Settings(state_dir=tmp_path), Choice(Quota.NONE, ()))
    node = LocalNode(tmp_path, cast(Any, Engine()), storage)
    part = HelloPart(node, cast(Any, None), 1.0)
    plan = SimpleNamespace(
        name="x", container_id="c", first=None, container_limits=None, network=None, own_link=None
    )
    await part._look(cast(Any, plan))
    assert (plan.first, plan.container_limits) == (None, {})
    assert "not visible here" in caplog.text
    release.set()


async def test_a_terminal_s_end_is_on_record_though_its_files_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release, written = threading.Event(), list[object]()

    def hang(*_: object) -> None:
        release.wait()

    class Store:
        async def write(self, effect: object) -> None:
            written.append(effect)

    monkeypatch.setattr(terminal_ends, "finish_abandoned", hang)
    monkeypatch.setattr(terminal_ends, "DISK_SECONDS", 0.05)
    nobody = cast(Any, None)
    ends = TerminalEnds(cast(Any, Store()), nobody, {}, nobody, Threads("the test", 1))
    row = TerminalRow("key", TerminalRecord.opened("pty-1", spec(), "2026-03-04T09:30:12.482113Z"))
    await ends.record_abandoned(None, row, tmp_path, "restarted")
    assert len(written) == 1
    release.set()
