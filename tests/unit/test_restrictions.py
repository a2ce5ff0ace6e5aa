"""Disks that hang while sandboxes start and end."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.workspace.quota import Quota
from orchestrator.sandbox.sandboxes import restrictions
from orchestrator.sandbox.sandboxes.restrictions import Restrictions
from orchestrator.state.directory import SandboxDirectory
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

LEVEL = cast(Any, SimpleNamespace(name="low", rates=SimpleNamespace(disk=True, network=False)))
WORKSPACE = cast(Any, SimpleNamespace(quota=Quota.IMAGE))


class Engine:
    """Records what it is asked to hold."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def hold_device(self, _image: str, device: str, *_: object) -> None:
        self.asked.append(device)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def held(engine: Engine) -> Restrictions:
    return Restrictions(cast(Any, engine), "an image")


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every look at a disk or at the kernel's files hangs until the event is set."""
    free = threading.Event()

    def hang(*_: object) -> Any:
        assert free.wait(WAIT_SECONDS)
        raise FileNotFoundError

    for name in ("device_of", "held", "root_group"):
        monkeypatch.setattr(restrictions, name, hang)
    monkeypatch.setattr(restrictions, "_SECONDS", 0.05)
    yield free
    free.set()


async def test_nothing_starts_on_a_disk_that_hangs(
    held: Restrictions, engine: Engine, hung: threading.Event, tmp_path: Path
) -> None:
    with pytest.raises(EngineUnavailableError, match="did not answer"):
        await held.disk(WORKSPACE, LEVEL, tmp_path)
    with pytest.raises(EngineUnavailableError, match="did not answer"):
        await held.begin(LEVEL, "c", None, "7:1")
    assert engine.asked == []


async def test_an_end_goes_on_where_the_disk_hangs(
    held: Restrictions,
    engine: Engine,
    hung: threading.Event,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        await held.end(SandboxDirectory(tmp_path / "abc"))
    assert "the rates of abc are not lifted: its disk does not answer" in caplog.text
    assert engine.asked == []


async def test_what_hangs_takes_few_threads_and_keeps_no_start(
    held: Restrictions, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = threading.Event()
    calls: list[Path] = []

    def device_of(path: Path) -> str:
        if path.name == "workspace":
            calls.append(path)
            assert free.wait(WAIT_SECONDS)
        return "7:1"

    monkeypatch.setattr(restrictions, "device_of", device_of)
    monkeypatch.setattr(restrictions, "held", lambda _: True)
    monkeypatch.setattr(restrictions, "_SECONDS", 0.05)
    ends = (held.end(SandboxDirectory(tmp_path / str(number))) for number in range(30))
    await asyncio.gather(*ends)
    await until(lambda: len(calls) == 4)
    monkeypatch.setattr(restrictions, "_SECONDS", 30)
    # The device's next user takes over the limit that was not lifted.
    assert await held.disk(WORKSPACE, LEVEL, tmp_path) == "7:1"
    assert engine.asked == ["7:1"]
    assert len(calls) == 4
    free.set()


async def test_rates_are_lifted_from_a_device_of_ones_own(
    held: Restrictions, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = SandboxDirectory(tmp_path)
    devices = {directory.workspace: "7:1", directory.path: "8:0"}
    monkeypatch.setattr(restrictions, "device_of", devices.__getitem__)
    monkeypatch.setattr(restrictions, "held", lambda _: True)
    await held.end(directory)
    assert engine.asked == ["7:1"]
    devices[directory.workspace] = "8:0"
    await held.end(directory)
    assert engine.asked == ["7:1"]
