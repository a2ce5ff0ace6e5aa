import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ValidationError
from orchestrator.host.engine.base import NO_RATES, Rates
from orchestrator.host.node.requirements import Requirements
from orchestrator.rules.policy.levels import Levels, effective_limits, load_levels, restore_level
from paddock.contract.words import LEVEL_PATTERN

MIB = 1024 * 1024
LOW = frozenset({"pwd", "ls", "cat", "head", "tail", "grep", "find", "wc", "stat"}) | {
    "mkdir", "touch", "cp", "mv", "rm",
}  # fmt: skip
MEDIUM = LOW | {"echo", "curl", "neofetch", "uname", "whoami", "date", "env", "which"}
PACKAGED = Path(__file__).parents[2] / "orchestrator" / "rules" / "policy" / "levels"


def test_packaged_levels() -> None:
    levels = load_levels()
    assert list(levels) == ["low", "medium", "high"]
    low, medium, high = levels.values()
    assert (low.rank, medium.rank, high.rank) == (100, 200, 300)
    assert [level.risk_tier for level in levels.values()] == ["low", "medium", "high"]
    assert low.requires == medium.requires == Requirements(1, True, True, False)
    assert high.requires.landlock == 1
    assert (low.confinement.paths, high.confinement.paths) == (True, False)
    assert low.commands == LOW
    assert medium.commands == MEDIUM
    assert high.commands is None
    assert (low.network, medium.network, high.network) == ("none", "egress", "open")
    assert (low.noexec, medium.noexec, high.noexec) == (True, True, False)
    assert (low.limits.cpus, low.limits.memory_bytes, low.limits.pids) == (0.5, 256 * MIB, 64)
    assert (medium.limits.tmp_bytes, medium.limits.workspace_bytes) == (64 * MIB, 1024 * MIB)
    assert (high.limits.shm_bytes, high.limits.workspace_bytes) == (64 * MIB, 10240 * MIB)
    assert (low.timeout_default, low.timeout_max) == (20, 120)
    assert (high.timeout_default, high.timeout_max) == (600, 3600)
    assert (low.home, high.home) == ("/nonexistent", "/workspace")
    assert low.environment == ("LANG", "LC_*", "TZ", "TERM", "NO_COLOR")
    assert high.environment is None


def test_what_is_stored_is_plain(tmp_path: Path) -> None:
    stored = load_levels()["low"].stored()
    assert json.loads(json.dumps(stored)) == stored
    assert stored["commands"] == sorted(LOW)
    assert stored["limits"]["memory_bytes"] == 256 * MIB
    assert load_levels()["high"].stored()["commands"] is None


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


def test_a_node_of_a_cluster_may_promise_its_durability(tmp_path: Path) -> None:
    directory = override(tmp_path, "rank = 100", 'durability = "cluster"\nrank = 100')
    level = load_levels(directory, cluster=True)["low"]
    assert level.durability == "cluster"
    assert restore_level(json.loads(json.dumps(level.stored()))) == level
    assert load_levels(cluster=True)["low"].durability == "node"


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("noexec = true", "noexec = 1", 9, "noexec: must be a valid boolean"),
        ("noexec = true", "noexec = true\nexec = 1", 10, "exec: is not a known field"),
        ("noexec = true", "", 1, "noexec: is missing"),
        ("rank = 100", "", 1, "rank: is missing"),
        ("rank = 100", "rank = 1001", 2, "rank: must be less than or equal to 1000"),
        ("rank = 100", "rank = 200", 2, "rank: 200 is also the rank of medium"),
        ('risk_tier = "low"', 'risk_tier = "none"', 3, "risk_tier: must be 'info', 'low', "),
        ('network = "none"', 'network = "host"', 8, "network: must be 'none', 'egress' or 'open'"),
        (
            *("rank = 100", 'durability = "cluster"\nrank = 100', 2),
            'durability: can be "cluster" only on a node of a cluster: set PADDOCK_CLUSTER',
        ),
        ("rank = 100", 'durability = "disk"\nrank = 100', 2, "durability: must be 'node' or"),
        ("cpus = 0.5", "cpus = -1", 28, "limits.cpus: "),
        ("cpus = 0.5", "cpus = nan", 28, "limits.cpus: "),
        ("cpus = 0.5", "cpus = '1'", 28, "limits.cpus: "),
        ("cpus = 0.5", "", 27, "limits.cpus: is missing"),
        ("pids = 64", "pids = 64.0", 30, "limits.pids: must be a valid integer"),
        ("pids = 64", "pids = 64\nfiles = 1", 31, "limits.files: is not a known field"),
        ("shm_bytes = 0", "shm_bytes = -1", 32, "limits.shm_bytes: "),
        ("[limits]", "[limit]", 27, "limit: is not a known field"),
        ("default = 20", "default = 200", 24, "timeout.default: is more than timeout.max"),
        ('"pwd", ', '"/bin/pwd", ', 5, "commands.0: must be a bare name, without a path"),
        ('"pwd", ', '"p wd", ', 5, "commands.0: must match pattern"),
        ('"pwd", ', '"pwd", "ls", ', 5, "commands.2: ls is in the list twice"),
        ("commands = [", 'commands = "all"\n_ = [', 4, 'commands: must be a list, or "any"'),
        ('"LANG"', '"*"', 10, "environment.0: must match pattern"),
        ('"LANG"', '"LANG", "LANG"', 10, "environment.1: LANG is in the list twice"),
        ("rank = 100", 'runtime = "a b"\nrank = 100', 2, "runtime: must match pattern"),
        (
            "mounts = true",
            'mounts = true\nwithout = ["mdwe"]',
            18,
            "requires.without.0: must be no",
        ),
        (
            *("mounts = true", 'mounts = true\nwithout = ["paths"]', 18),
            "requires.without: can't name paths with confinement.paths",
        ),
        (
            *("mounts = true", 'mounts = true\nwithout = ["notification"]', 18),
            "requires.without: can name notification only with confinement.record_execs = false",
        ),
        (
            *("mounts = true", 'mounts = true\nwithout = ["flags"]', 18),
            "requires.without: can name flags only with noexec = false",
        ),
        (
            *("mounts = true", 'mounts = true\nwithout = ["scopes"]', 18),
            "requires.without: low goes without nothing: give this level another name",
        ),
        (
            *("mounts = true", 'mounts = true\nwithout = ["scopes", "scopes"]', 18),
            "requires.without.1: scopes is in the list twice",
        ),
        ("rank = 100", "images = []\nrank = 100", 2, "images: must have at least 1 item"),
        ("rank = 100", 'images = ["a b"]\nrank = 100', 2, "images.0: must match pattern"),
        ("rank = 100", 'images = ["a", "a"]\nrank = 100', 2, "images.1: a is in the list twice"),
        ('home = "/nonexistent"', 'home = "x"', 11, "home: must match pattern"),
        ("landlock = 1", "landlock = 0", 15, "requires.landlock: must be 1 or more"),
        ("landlock = 1", "landlock = -1", 15, "requires.landlock: "),
        ("mounts = true", "mounts = false", 17, "requires.mounts: must be true"),
        ("mounts = true", "mount = true", 17, "requires.mount: is not a known field"),
        ("[limits]", "[limits", 27, "Expected ']' at the end of a table declaration"),
    ],
)
def test_bad_files_are_refused(
    tmp_path: Path, old: str, new: str, line: int, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_levels(override(tmp_path, old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'low.toml'}:{line}: {expected}")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("usr/lib", "must be an absolute path"),
        ("", "must be an absolute path"),
        ("/", "must not be the whole image"),
        ("//", "must be a path without"),
        ("//usr/lib", "must be a path without"),
        ("/usr/lib/", "must be a path without"),
        ("/usr/../etc", "must be a path without"),
        ("/usr/./lib", "must be a path without"),
        ("/usr/l\\nib", "must be a path without"),
        ("/proc", "must not be below /proc, /sys, /run"),
        ("/proc/1/root", "must not be below /proc, /sys, /run"),
        ("/sys/fs", "must not be below /proc, /sys, /run"),
        ("/run/paddock", "must not be below /proc, /sys, /run"),
    ],
)
@pytest.mark.parametrize("name", ["read", "execute"])
def test_paths_of_the_image(tmp_path: Path, name: str, entry: str, said: str) -> None:
    new = f'writable_code = false\n{name} = [\n"/usr/lib/x", "/runs",\n"{entry}"]'
    with pytest.raises(ConfigError) as caught:
        load_levels(override(tmp_path, "writable_code = false", new))
    place = f"{tmp_path / 'low.toml'}:24: confinement.{name}.2: "
    assert str(caught.value).startswith(place + said)


def test_writes_are_guarded_unless_any_command_may_run_and_the_file_says_so(
    tmp_path: Path,
) -> None:
    assert all(level.guard_writes for level in load_levels().values())
    with pytest.raises(ConfigError, match=r"guard_writes: can be false only with commands = "):
        load_levels(override(tmp_path, "rank = 100", "guard_writes = false\nrank = 100"))
    (tmp_path / "low.toml").unlink()
    text = (PACKAGED / "high.toml").read_text()
    (tmp_path / "high.toml").write_text(f"guard_writes = false\n{text}")
    level = load_levels(tmp_path)["high"]
    assert not level.guard_writes
    assert restore_level(level.stored()) == level
    # Sessions that are older than the field.
    stored = load_levels()["high"].stored()
    del stored["guard_writes"]
    assert restore_level(stored).guard_writes


def test_rates_are_for_those_that_have_them(tmp_path: Path) -> None:
    assert all(level.rates == NO_RATES for level in load_levels().values())
    text = (PACKAGED / "high.toml").read_text()
    (tmp_path / "high.toml").write_text(
        f"{text}\n[rates]\ndisk_write = 1_048_576\nnetwork_send = 16_384\n"
    )
    level = load_levels(tmp_path)["high"]
    assert level.rates == Rates(disk_write=2**20, network_send=16_384)
    assert level.stored()["rates"]["disk_read"] is None
    assert restore_level(level.stored()) == level
    # Sessions that are older than rates.
    stored = load_levels()["high"].stored()
    del stored["rates"]
    assert restore_level(stored).rates == NO_RATES


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("disk_read = 0", "disk_read: must be greater than or equal to 1048576"),
        ("disk_write = 1048575", "disk_write: must be greater than or equal to 1048576"),
        ("disk_write = 4_000_000_001", "disk_write: must be less than or equal to 4000000000"),
        ("disk_write = 2e6", "disk_write: must be a valid integer"),
        ("disk_write = true", "disk_write: must be a valid integer"),
        ("network_receive = -1", "network_receive: must be greater than or equal to 16384"),
        ("network_send = 16_384", 'network_send: has no effect without network = "open"'),
        ("network = 1", "network: is not a known field"),
    ],
)
def test_bad_rates_are_refused(tmp_path: Path, rate: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_levels(override(tmp_path, "[limits]", f"[rates]\n{rate}\n\n[limits]"))
    assert str(caught.value).startswith(f"{tmp_path / 'low.toml'}:28: rates.{said}")


def test_images_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "low.toml").write_text(f'images = ["dev"]\n{(PACKAGED / "low.toml").read_text()}')
    level = load_levels(tmp_path)["low"]
    assert level.images == ("dev",)
    assert restore_level(json.loads(json.dumps(level.stored()))) == level
    # Sessions that are older than this field.
    stored = load_levels()["low"].stored()
    del stored["images"]
    assert restore_level(stored).images is None


def test_variables_of_its_own(tmp_path: Path) -> None:
    text = (PACKAGED / "high.toml").read_text()
    (tmp_path / "high.toml").write_text(
        f'{text}\n[variables]\nPIP_INDEX_URL = "http://a.example"\n'
    )
    level = load_levels(tmp_path)["high"]
    assert level.variables == (("PIP_INDEX_URL", "http://a.example"),)
    assert restore_level(json.loads(json.dumps(level.stored()))) == level
    # Sessions that are older than variables.
    stored = load_levels()["high"].stored()
    del stored["variables"]
    assert restore_level(stored).variables == ()


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ('PATH = "/tmp"', "PATH: is set by the sandbox itself"),
        ('HOME = "/tmp"', "HOME: is set by the sandbox itself"),
        ('HTTPS_PROXY = "http://a"', "HTTPS_PROXY: is set by the sandbox itself"),
        ('no_proxy = "*"', "no_proxy: is set by the sandbox itself"),
        ('"A-B" = "x"', "A-B: "),
        ('"" = "x"', ": "),
        ("A = 1", "A: must be a valid string"),
        ('A = "a\\u0000b"', "A: "),
        ('A = "a\\nb"', "A: "),
        (f'A = "{"x" * 4097}"', "A: "),
        ("\n".join(f'A{n} = ""' for n in range(65)), "variables: "),
    ],
)
def test_bad_variables_are_refused(tmp_path: Path, variable: str, said: str) -> None:
    text = (PACKAGED / "high.toml").read_text()
    (tmp_path / "high.toml").write_text(f"{text}\n[variables]\n{variable}\n")
    with pytest.raises(ConfigError) as caught:
        load_levels(tmp_path)
    line = text.count("\n") + (2 if said.startswith("variables") else 3)
    assert f"high.toml:{line}: " in str(caught.value)
    assert said in str(caught.value)


def test_lists_of_paths_without_their_rules(tmp_path: Path) -> None:
    new = 'paths = false\nexecute = ["/usr/lib/git-core"]\n#'
    with pytest.raises(ConfigError, match=r":21: confinement\.execute: has no effect without"):
        load_levels(override(tmp_path, "paths = true ", new))
    (tmp_path / "low.toml").unlink()
    with pytest.raises(ConfigError, match=r":18: confinement\.paths: can be true only if"):
        load_levels(override(tmp_path, "paths = false", "paths = true", "high"))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "low.toml").write_bytes(b"rank = \xff")
    with pytest.raises(ConfigError, match=r"low\.toml: must be UTF-8"):
        load_levels(tmp_path)
    (tmp_path / "low.toml").unlink()
    (tmp_path / "low.toml").mkdir()
    with pytest.raises(ConfigError, match=r"low\.toml: Is a directory"):
        load_levels(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#" * 8 * MIB + "##", "has more than 8388608 bytes"),
        ("x = " + "[" * 9999, "nested too deep"),
    ],
)
def test_files_are_bounded(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "low.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"low\.toml: .*{reason}"):
        load_levels(tmp_path)


def fourth(tmp_path: Path, name: str = "build", rank: int = 250) -> Path:
    """A level of the operator, like low."""
    text = (PACKAGED / "low.toml").read_text()
    (tmp_path / f"{name}.toml").write_text(text.replace("rank = 100", f"rank = {rank}"))
    return tmp_path


def test_a_fourth_level(tmp_path: Path) -> None:
    levels = load_levels(fourth(tmp_path))
    assert list(levels) == ["low", "medium", "build", "high"]
    build = levels["build"]
    assert (build.name, build.rank, build.commands) == ("build", 250, LOW)
    assert restore_level(json.loads(json.dumps(build.stored()))) == build
    assert list(load_levels(fourth(tmp_path, rank=0))) == ["build", "low", "medium", "high"]
    (tmp_path / ".draft.toml").write_text("half of it")
    fourth(tmp_path, "x" * 32, 999)
    assert list(load_levels(tmp_path))[-1] == "x" * 32


@pytest.mark.parametrize("name", ["Build", "1st", "my_level", "-x", "x" * 33, "a.b", "ä"])
def test_names_that_no_level_has(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"\.toml: a level's name begins with a lower-case"):
        load_levels(fourth(tmp_path, name))


def test_two_levels_of_one_rank(tmp_path: Path) -> None:
    fourth(tmp_path, "one", 5)
    with pytest.raises(ConfigError, match=r"two\.toml:2: rank: 5 is also the rank of one"):
        load_levels(fourth(tmp_path, "two", 5))


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a directory"):
        load_levels(tmp_path / "none")


def test_a_level_that_is_gone(tmp_path: Path) -> None:
    levels = Levels(load_levels(fourth(tmp_path)))
    assert levels.named("build").rank == 250
    levels.replace(load_levels())
    with pytest.raises(ValidationError) as caught:
        levels.named("build")
    assert caught.value.detail == "permission_level must be low|medium|high"


def test_the_example_level() -> None:
    levels = load_levels(Path(__file__).parents[2] / "examples" / "levels")
    assert list(levels) == ["low", "medium", "build", "agent", "high", "packages"]
    commands = levels["build"].commands
    assert commands is not None
    assert commands > MEDIUM
    assert commands >= {"python3", "git", "pip3"}
    assert levels["build"].confinement.execute == [
        "/usr/lib/git-core",
        "/usr/bin/git",
        "/usr/bin/dash",
    ]
    assert all(re.fullmatch(LEVEL_PATTERN, name) for name in levels)


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
