"""The operator's list of mounts: what it may contain, and how it is resolved."""

from pathlib import Path
from typing import Any

import pydantic
import pytest

from orchestrator.ground.check import CheckStatus
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import EngineUnavailableError, ValidationError
from orchestrator.operate.checks.operator_mounts import check_mount_list
from orchestrator.rules.policy import levels
from orchestrator.settings.operator_mounts import OperatorMount, chosen, real_source
from orchestrator.settings.settings import Settings

NAMED = {"source": "/srv/sockets", "target": "/run/postgresql"}


def settings(mounts: Any, **more: Any) -> Settings:
    return Settings(mounts=mounts, **{"state_dir": Path("/var/lib/paddock"), **more})


def test_a_list() -> None:
    found = settings({"postgresql": NAMED, "data": {"source": "/srv/data", "target": "/mnt/data",
                                                    "read_only": False}})  # fmt: skip
    assert found.mounts["postgresql"].read_only
    assert not found.mounts["data"].read_only


def test_a_list_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_MOUNTS", '{"a": {"source": "/srv/a", "target": "/mnt/a"}}')
    assert Settings().mounts == {"a": OperatorMount(source="/srv/a", target="/mnt/a")}


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ("{", "must be JSON"),
        ([], "valid dictionary"),
        ({"a b": NAMED}, "is not a name"),
        ({"a": {**NAMED, "mode": "rw"}}, "Extra inputs"),
        ({"a": {"source": "/srv"}}, "Field required"),
        ({"a": {**NAMED, "source": "srv"}}, "absolute path"),
        ({"a": {**NAMED, "source": "/"}}, "absolute path"),
        ({"a": {**NAMED, "source": "/srv/../etc"}}, "without"),
        ({"a": {**NAMED, "source": "/srv/a\nb"}}, "without"),
        ({"a": {**NAMED, "source": "/proc/1"}}, "the kernel's /proc"),
        ({"a": {**NAMED, "source": "/dev"}}, "the kernel's /dev"),
        ({"a": {**NAMED, "source": "/run"}}, "engine's socket /run/docker.sock"),
        ({"a": {**NAMED, "source": "/var/run"}}, "engine's socket"),
        ({"a": {**NAMED, "source": "/run/containerd"}}, "engine's socket"),
        ({"a": {**NAMED, "source": "/var/lib"}}, "control plane's own"),
        ({"a": {**NAMED, "source": "/var/lib/paddock/slots"}}, "control plane's own"),
        ({"a": {**NAMED, "target": "/usr/lib"}}, "below /mnt or /run"),
        ({"a": {**NAMED, "target": "/mnt"}}, "below /mnt or /run"),
        ({"a": {**NAMED, "target": "/run/paddock"}}, "reserved for the control plane"),
        ({"a": {**NAMED, "target": "/run/paddock/x"}}, "reserved for the control plane"),
        ({"a": NAMED, "b": NAMED}, "b.target: overlaps with the target of a"),
        ({"a": NAMED, "b": {**NAMED, "target": "/run/postgresql/b"}}, "overlaps"),
    ],
)
def test_what_may_not_be_on_it(mounts: Any, said: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=said):
        settings(mounts)


def test_the_engine_of_the_settings_is_not_shared() -> None:
    with pytest.raises(pydantic.ValidationError, match=r"engine's socket /srv/sockets/d\.sock"):
        settings({"a": NAMED}, docker_host="unix:///srv/sockets/d.sock")


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/var/run")
    with pytest.raises(pydantic.ValidationError, match="engine's socket"):
        settings({"a": {**NAMED, "source": f"{tmp_path}/link"}})
    (tmp_path / "there").mkdir()
    (tmp_path / "other").symlink_to("there")
    mount = OperatorMount(source=f"{tmp_path}/other", target="/mnt/a")
    assert real_source("a", mount, (), None) == str((tmp_path / "there").resolve())
    # The link is resolved again at each mount.
    (tmp_path / "other").unlink()
    (tmp_path / "other").symlink_to("/run")
    with pytest.raises(EngineUnavailableError, match=r"mount a: .*engine's socket"):
        real_source("a", mount, (), None)


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    mount = OperatorMount(source=f"{tmp_path}/missing", target="/mnt/a")
    with pytest.raises(EngineUnavailableError, match=r"mount a: .*is not a directory"):
        real_source("a", mount, (), None)


def test_only_what_is_listed_can_be_chosen() -> None:
    listed = settings({"a": NAMED}).mounts
    assert list(chosen(listed, ("a", "a"))) == ["a"]
    with pytest.raises(ValidationError, match="mounts: b is not on the operator's list"):
        chosen(listed, ("a", "b"))


def levels_with(directory: Path, mounts: str) -> Path:
    text = (Path(levels.__file__).with_name("levels") / "low.toml").read_text()
    (directory / "own.toml").write_text(f"mounts = {mounts}\n{text.replace('= 100', '= 150')}")
    return directory


def test_a_level_names_mounts_and_keeps_them(tmp_path: Path) -> None:
    level = levels.load_levels(levels_with(tmp_path, '["postgresql", "redis"]'))["own"]
    assert level.mounts == ("postgresql", "redis")
    assert levels.restore_level(level.stored()) == level
    # A session that is older than mounts is pinned to a level without them.
    before = {name: value for name, value in level.stored().items() if name != "mounts"}
    assert levels.restore_level(before).mounts == ()


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ('"postgresql"', r"own\.toml:1: mounts: must be a valid list"),
        ('["a", "a"]', r"own\.toml:1: mounts\.1: a is in the list twice"),
        ('["../a"]', r"own\.toml:1: mounts\.0: "),
    ],
)
def test_mistakes_of_a_level(tmp_path: Path, mounts: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        levels.load_levels(levels_with(tmp_path, mounts))


def test_the_doctor_says_what_is_missing(tmp_path: Path) -> None:
    known = levels.load_levels(levels_with(tmp_path, '["b", "c"]')).values()
    (tmp_path / "there").mkdir()
    listed = settings(
        {
            "a": {**NAMED, "source": f"{tmp_path}/missing"},
            "b": {"source": f"{tmp_path}/there", "target": "/mnt/b"},
        }
    )
    check = check_mount_list(listed, known)
    assert check.status is CheckStatus.WARNING
    assert check.detail == (
        f"mount a: {tmp_path}/missing is not a directory of this host; "
        "level own names c, which the list lacks"
    )
    assert check_mount_list(settings({}), levels.load_levels().values()).ok
