"""Ends freeze a sandbox by its control group: all stands still, and no engine is asked."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.host.engine.base import ContainerState
from orchestrator.host.node import container_freeze
from orchestrator.host.node.control_groups import Group, HostPaths, this_host
from orchestrator.host.node.processes import Earlier
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNTING = "i=0; while :; do i=$((i+1)); echo $i > count; done"


async def counting(box: Box) -> None:
    await box.start(argv=["sh", "-c", COUNTING], background=True)
    await until(lambda: count(box) > 0)


def count(box: Box) -> int:
    path = Path(box.session.root_dir, "count")
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


async def test_an_end_asks_the_engine_for_no_pause(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("high")
    await counting(box)
    asked = []

    async def pause(container: str) -> None:
        asked.append(container)

    monkeypatch.setattr(box.plane.engine, "pause", pause)
    counted = []
    ended = box.plane.sessions.ends._sandboxes.quiesce

    async def quiesce(*args: object, **more: object) -> bool:
        counted.append(count(box))
        return await ended(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(box.plane.sessions.ends._sandboxes, "quiesce", quiesce)
    await box.plane.sessions.close(TESTER, box.session, purge=False)
    assert asked == []
    assert len(counted) == 1  # its agent went on, and ended what ran
    exits = [each for each in await box.events() if each["operation"] == "command.exit"]
    assert len(exits) == 1
    await box.close()


async def test_what_is_frozen_stands_still_until_it_goes_on(new_box: BoxFactory) -> None:
    box = await new_box("high")
    await counting(box)
    sandbox, node = box.session.sandbox, box.plane.node
    assert sandbox is not None
    facts = sandbox.container_id, sandbox.first
    assert await node.freeze(*facts)
    before = count(box)
    look = await node.measure(*facts, Earlier())
    assert look.found is not None
    assert look.found[0].frozen is True
    assert count(box) == before
    assert not await node.freeze(*facts)  # it is frozen already, by whomever
    assert await node.thaw(*facts)
    await until(lambda: count(box) > before)
    assert not await node.thaw(*facts)
    await box.close()


async def test_what_is_frozen_can_be_ended(new_box: BoxFactory) -> None:
    box = await new_box("high")
    await counting(box)
    sandbox, node = box.session.sandbox, box.plane.node
    assert sandbox is not None
    assert await node.freeze(sandbox.container_id, None)
    await node.end(sandbox.container_id, None)

    async def exited() -> bool:
        found = await box.plane.engine.inspect(sandbox.container_id)
        return found is None or found.state is ContainerState.EXITED

    async with asyncio.timeout(10):
        await box.session.over
    assert await exited()
    await box.close()


async def test_a_pause_of_the_engine_is_the_engines(new_box: BoxFactory) -> None:
    """An end of a paused session has its engine freeze and thaw it, and leaves nothing."""
    box = await new_box("high")
    await counting(box)
    await box.plane.sessions.pause(TESTER, box.session)
    before = count(box)
    await box.plane.sessions.close(TESTER, box.session, purge=False)
    assert count(box) <= before + 1
    await box.close()


async def test_a_group_that_is_not_there_is_nobodys() -> None:
    assert not container_freeze.freeze("no-such-container", None, this_host(), 0.1)
    assert not container_freeze.thaw("no-such-container", None, this_host())


@contextmanager
def version_2() -> Iterator[Group]:
    """A control group of version 2, with a process that is busy."""
    mount = this_host().mounts.get("")
    if mount is None:
        pytest.skip("no control groups of version 2 are mounted here")
    directory = mount.point / "paddock-test-freeze"
    directory.mkdir()
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        (directory / "cgroup.procs").write_text(str(busy.pid))
        yield Group(2, directory)
    finally:
        (directory / "cgroup.freeze").write_text("0")
        busy.kill()
        busy.wait()
        directory.rmdir()


async def test_version_2_announces_that_all_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    with version_2() as group:
        monkeypatch.setattr(container_freeze, "_freezer", lambda *_: group)
        nowhere = HostPaths()
        assert container_freeze.freeze("c", None, nowhere, 5.0)
        assert "frozen 1" in (group.directory / "cgroup.events").read_text()
        assert not container_freeze.freeze("c", None, nowhere, 5.0)
        assert container_freeze.thaw("c", None, nowhere)
        assert not container_freeze.is_frozen(group)
        # What can't be frozen in time is not said to be.
        assert not container_freeze._await_frozen(group, time.monotonic() - 1)
