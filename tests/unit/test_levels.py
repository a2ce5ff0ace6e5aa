import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ValidationError
from orchestrator.policy.levels import LevelError, effective_limits, load_levels

MIB = 1024 * 1024
LOW = frozenset({"pwd", "ls", "cat", "head", "tail", "grep", "find", "wc", "stat"}) | {
    "mkdir", "touch", "cp", "mv", "rm",
}  # fmt: skip
MEDIUM = LOW | {"echo", "curl", "neofetch", "uname", "whoami", "date", "env", "which"}
PACKAGED = Path(__file__).parents[2] / "orchestrator" / "policy" / "levels"


def test_packaged_levels() -> None:
    levels = load_levels()
    assert list(levels) == ["low", "medium", "high"]
    low, medium, high = levels.values()
    assert (low.rank, medium.rank, high.rank) == (0, 1, 2)
    assert low.commands == LOW
    assert medium.commands == MEDIUM
    assert high.commands is None
    assert (low.network, medium.network, high.network) == ("none", "none", "open")
    assert (low.noexec, medium.noexec, high.noexec) == (True, True, False)
    assert (low.limits.cpus, low.limits.memory_bytes, low.limits.pids) == (0.5, 256 * MIB, 64)
    assert (medium.limits.tmp_bytes, medium.limits.workspace_bytes) == (64 * MIB, 1024 * MIB)
    assert (high.limits.shm_bytes, high.limits.workspace_bytes) == (64 * MIB, 10240 * MIB)
    assert (low.timeout_default, low.timeout_max, high.timeout_max) == (20, 120, 3600)
    assert (low.home, high.home) == ("/nonexistent", "/workspace")
    assert low.environment == ("LANG", "LC_*", "TZ", "TERM", "NO_COLOR")
    assert high.environment is None


def test_public_is_plain(tmp_path: Path) -> None:
    public = load_levels()["low"].public()
    assert json.loads(json.dumps(public)) == public
    assert public["commands"] == sorted(LOW)
    assert public["limits"]["memory_bytes"] == 256 * MIB
    assert load_levels()["high"].public()["commands"] is None


def override(tmp_path: Path, old: str, new: str, name: str = "low") -> Path:
    text = (PACKAGED / f"{name}.toml").read_text()
    assert old in text
    (tmp_path / f"{name}.toml").write_text(text.replace(old, new))
    return tmp_path


def test_a_file_in_the_directory_replaces_the_packaged_one(tmp_path: Path) -> None:
    levels = load_levels(override(tmp_path, '"pwd", ', ""))
    assert levels["low"].commands == LOW - {"pwd"}
    data = (tmp_path / "low.toml").read_bytes()
    assert levels["low"].sha256 == hashlib.sha256(data).hexdigest()
    assert levels["medium"] == load_levels()["medium"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("noexec = true", "noexec = 1", "noexec: "),
        ("noexec = true", "noexec = true\nexec = 1", "exec: Extra"),
        ("noexec = true", "", "noexec: Field required"),
        ('network = "none"', 'network = "host"', "network: "),
        ("cpus = 0.5", "cpus = -1", "limits.cpus: "),
        ("cpus = 0.5", "cpus = nan", "limits.cpus: "),
        ("cpus = 0.5", "cpus = '1'", "limits.cpus: "),
        ("pids = 64", "pids = 64.0", "limits.pids: "),
        ("pids = 64", "pids = 64\nfiles = 1", "limits.files: Extra"),
        ("shm_bytes = 0", "shm_bytes = -1", "limits.shm_bytes: "),
        ("default = 20", "default = 200", "timeout.default: is over"),
        ('"pwd", ', '"/bin/pwd", ', "commands"),
        ('"LANG"', '"*"', "environment"),
        ('home = "/nonexistent"', 'home = "x"', "home: "),
        ("[limits]", "[limits", "Expected"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(LevelError) as caught:
        load_levels(override(tmp_path, old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'low.toml'}: {expected}")


def test_other_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "extreme.toml").write_text("")
    with pytest.raises(LevelError, match=r"extreme\.toml: levels are low, medium, high"):
        load_levels(tmp_path)
    with pytest.raises(LevelError, match="not a directory"):
        load_levels(tmp_path / "none")


def test_limits_can_be_lowered() -> None:
    medium = load_levels()["medium"]
    limits = effective_limits(medium, {"cpus": 1, "memory_bytes": 64 * MIB})
    assert (limits.cpus, limits.memory_bytes) == (1.0, 64 * MIB)
    assert isinstance(limits.cpus, float)
    assert limits.pids == medium.limits.pids
    assert effective_limits(medium, {}) == medium.limits


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpus", 1.01),
        ("cpus", 0.04),
        ("cpus", True),
        ("cpus", "1"),
        ("cpus", None),
        ("cpus", float("nan")),
        ("cpus", float("inf")),
        ("cpus", 10**400),
        ("memory_bytes", 1024 * MIB + 1),
        ("memory_bytes", 63 * MIB),
        ("memory_bytes", float(64 * MIB)),
        ("pids", 15),
        ("pids", -1),
        ("tmp_bytes", 0),
        ("workspace_bytes", [1]),
        ("shm_bytes", 0),
        ("gpus", 1),
    ],
)
def test_bad_limits_are_named(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        effective_limits(load_levels()["medium"], {field: value})
    assert caught.value.fields["field"] == f"limits.{field}"
    assert f"limits.{field}" in caught.value.detail


@given(
    st.dictionaries(
        st.sampled_from(["cpus", "memory_bytes", "pids", "tmp_bytes", "workspace_bytes"]),
        st.one_of(st.integers(), st.floats(), st.none(), st.text(), st.booleans()),
    )
)
def test_limits_never_rise(requested: dict[str, Any]) -> None:
    level = LEVELS["low"]
    try:
        limits = effective_limits(level, requested)
    except ValidationError:
        return
    for name in requested:
        assert 0 < getattr(limits, name) <= getattr(level.limits, name)


LEVELS = load_levels()


def test_what_lies_in_memory_leaves_half_of_it_free() -> None:
    limits = effective_limits(load_levels()["high"], {"memory_bytes": 128 * MIB})
    assert (limits.tmp_bytes, limits.shm_bytes) == (32 * MIB, 32 * MIB)
