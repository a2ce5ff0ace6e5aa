"""The agent that containers have mounted: when it is made, and how long it is kept."""

import os
import shutil
from pathlib import Path

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import Container, ContainerState, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.sandbox.images import mounted_agents
from orchestrator.sandbox.images.mounted_agents import LABEL_AGENT, MountedAgents, read_code
from sandbox_agent.decide.facilities import WITHOUT

FIRST, SECOND = Image("sha256:" + "a" * 64, {}), Image("sha256:" + "b" * 64, {})


def changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of control planes that start from now on is another version."""
    code = {**read_code(), "sandbox_agent/server.py": b"pass"}
    monkeypatch.setattr(mounted_agents, "read_code", lambda: code)


def test_the_agent_has_its_code_and_its_baseline() -> None:
    names = read_code().keys()
    assert {"sandbox_agent/__main__.py", "sandbox_agent/enforce/reads/baseline.toml"} < names
    assert {Path(name).suffix for name in names} == {".c", ".conf", ".h", ".py", ".sh", ".toml"}


async def test_it_is_made_once_for_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = tmp_path / "state"
    images = {"ours": FIRST}
    engine = FakeEngine(images=images)
    agents = MountedAgents(engine, state_dir, "ours")
    first = await agents.directory()
    assert (first / "lib").is_dir()
    assert await MountedAgents(engine, state_dir, "ours").directory() == first
    assert engine.calls.count("make_agent") == 1
    # Another interpreter, or another agent, counts from the next start on.
    images["ours"] = SECOND
    assert await agents.directory() == first
    second = await MountedAgents(engine, state_dir, "ours").directory()
    changed(monkeypatch)
    third = await MountedAgents(engine, state_dir, "ours").directory()
    assert set((state_dir / "agents").iterdir()) == {first, second, third}
    assert len({first, second, third}) == 3


async def test_one_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    agents = MountedAgents(FakeEngine(images={"ours": FIRST}), tmp_path, "ours")
    first = await agents.directory()
    shutil.rmtree(first)
    assert await agents.directory() == first
    assert first.is_dir()


async def test_one_that_can_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    engine = FakeEngine(images={"ours": FIRST})
    agents = MountedAgents(engine, tmp_path / "state", "ours")
    engine.fail_next("make_agent")
    with pytest.raises(EngineUnavailableError):
        await agents.directory()
    assert list((tmp_path / "state" / "agents").iterdir()) == []
    assert (await agents.directory()).is_dir()


async def test_a_place_from_which_nothing_starts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = MountedAgents(FakeEngine(images={"ours": FIRST}), tmp_path, "ours")
    found = os.statvfs(tmp_path)
    members = [*found]
    members[8] |= os.ST_NOEXEC
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(members))
    with pytest.raises(EngineUnavailableError, match="mounted noexec"):
        await agents.directory()


async def test_those_that_no_container_has_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(images={"ours": FIRST})
    earlier = MountedAgents(engine, tmp_path, "ours")
    await earlier.remove_unused()  # there is nothing yet
    used = await earlier.directory()
    changed(monkeypatch)
    agents = MountedAgents(engine, tmp_path, "ours")
    current = await agents.directory()
    left = tmp_path / "agents" / "0123456789abcdef"
    shutil.copytree(current, left)
    labels = {LABEL_AGENT: used.name}
    engine.containers["c"] = Container("c", "paddock-c", labels, ContainerState.RUNNING)
    for each in (agents, MountedAgents(engine, tmp_path, "ours")):
        await each.remove_unused()
        assert set((tmp_path / "agents").iterdir()) == {used, current}
    del engine.containers["c"]
    await agents.remove_unused()
    assert set((tmp_path / "agents").iterdir()) == {current}


async def test_an_image_of_ours_gives_the_agent_no_variable_but_that_of_tests(
    tmp_path: Path,
) -> None:
    agents = MountedAgents(FakeEngine(images={"ours": FIRST}), tmp_path, "ours")
    image = Image("sha256:1", {}, environment=("PATH=/x", "LD_PRELOAD=/y.so", f"{WITHOUT}=mdwe"))
    mounted = await agents.mounted(image, ("/data",))
    assert mounted.unset == ("PATH", "LD_PRELOAD")
    assert mounted.hidden == ("/data",)
    assert mounted.directory == str(await agents.directory())
