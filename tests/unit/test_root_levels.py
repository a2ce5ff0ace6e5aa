"""Level files with root inside: what they may say, and what the store keeps of it."""

from pathlib import Path

import pytest

from orchestrator.ground.config_error import ConfigError
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node.requirements import Facts
from orchestrator.operate.checks.levels import level_checks
from orchestrator.operate.checks.root_inside import check_root_inside
from orchestrator.rules.policy.levels import load_levels, restore_level
from orchestrator.settings.settings import Settings
from orchestrator.state.shapes import can_wait
from paddock.contract.words import LEVEL_NAMES
from sandbox_agent.decide.facilities import Kernel
from sandbox_agent.decide.writable_places import LAYER
from tests.support.root_levels import LEVEL, write_root_level

MIB = 1024 * 1024
KERNEL = Kernel(landlock=6, notification=True, undisturbed=True, mdwe=True)


def test_a_level_of_the_operators(tmp_path: Path) -> None:
    write_root_level(tmp_path, f"root_bytes = {64 * MIB}")
    levels = load_levels(tmp_path)
    level = levels[LEVEL]
    assert (level.user, level.root_bytes, level.layer) == ("root", 64 * MIB, LAYER)
    assert restore_level(level.stored()) == level
    assert not can_wait(level)
    for name in LEVEL_NAMES:
        assert (levels[name].user, levels[name].root_bytes, levels[name].layer) == (
            "sandbox",
            None,
            (),
        )


def test_a_stored_level_of_an_earlier_version(tmp_path: Path) -> None:
    high = load_levels()["high"]
    stored = high.stored()
    del stored["user"], stored["root_bytes"]
    assert restore_level(stored) == high


@pytest.mark.parametrize("name", LEVEL_NAMES)
def test_never_at_the_shipped_levels(tmp_path: Path, name: str) -> None:
    rank = load_levels()[name].rank
    write_root_level(tmp_path, name=name, rank=rank)
    with pytest.raises(ConfigError, match=rf"user: {name} has no root inside: give this level"):
        load_levels(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('commands = "any"', 'commands = ["ls"]', 'user: can be "root" only with commands = "any"'),
        ('user = "root"', 'user = "admin"', "user: must be"),
        ('user = "root"', "", 'root_bytes: has no effect without user = "root"'),
        ("noexec = false", "noexec = true", "root_bytes: needs noexec = false"),
        (f"root_bytes = {64 * MIB}", f"root_bytes = {MIB}", "root_bytes: "),
        ("[timeout]", f"[rates]\ndisk_read = {MIB}\n[timeout]", "root_bytes: can't be had with"),
        ("mounts = true", 'mounts = true\nwithout = ["scopes"]', 'user: can be "root" only where'),
    ],
)
def test_contradictions(tmp_path: Path, old: str, new: str, message: str) -> None:
    write_root_level(tmp_path, f"root_bytes = {64 * MIB}")
    file = tmp_path / f"{LEVEL}.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_levels(tmp_path)
    assert message in str(caught.value)


async def test_the_doctor_says_why_there_is_none(tmp_path: Path) -> None:
    write_root_level(tmp_path, f"root_bytes = {64 * MIB}")
    levels = load_levels(tmp_path)
    engine, facts = FakeEngine(), Facts(KERNEL, mounts=True, quota=True)

    async def refused(_runtime: str | None) -> str | None:
        return "the kernel has none"

    settings = Settings(state_dir=tmp_path / "state")
    checks = await check_root_inside(engine, refused, settings, levels.values(), 20.0)
    assert [(each.name, each.ok) for each in checks] == [
        ("root inside", False),
        ("writable layer", False),
    ]
    assert checks[0].detail == "the kernel has none"
    assert "the storage driver overlay2 does" in checks[1].detail
    told = {each.name: each for each in level_checks(levels, [], facts, None, 8, {}, checks)}
    assert told["level high"].ok
    assert told[f"level {LEVEL}"].detail == "can't be enforced: root inside, writable layer"
    assert await check_root_inside(engine, refused, settings, load_levels().values(), 20.0) == []


def test_it_needs_scopes(tmp_path: Path) -> None:
    write_root_level(tmp_path)
    levels = load_levels(tmp_path)
    older = Facts(KERNEL._replace(landlock=5), mounts=True, quota=True)
    told = {each.name: each for each in level_checks(levels, [], older, None, 8)}
    assert "needs Landlock scopes for root inside" in told[f"level {LEVEL}"].detail
    assert told["level high"].ok
