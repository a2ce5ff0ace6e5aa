"""Level files with root inside: what they may say, and what the store keeps of it."""

from pathlib import Path

import pytest

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.policy.levels import load_levels, restore_level
from orchestrator.state.shapes import can_wait
from paddock.contract.words import LEVEL_NAMES
from sandbox_agent.decide.writable_places import LAYER
from tests.support.root_levels import LEVEL, write_root_level

MIB = 1024 * 1024


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
