"""The launcher of a node on a Swarm, with an engine that only remembers."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker.errors import NotFound

from deploy.launcher import CONTAINER, MADE_FROM, Launcher, place_secrets, wanted
from scripts.node_options import SOURCE, TARGET, options, text

SETTINGS = {
    "LAUNCHER_IMAGE": "sha256:1",
    "LAUNCHER_SOCKET": "/run/engine.sock",
    "PADDOCK_STATE_DIR": "/srv/state",
    "PADDOCK_NODE": "a",
    "PADDOCK_NODE_URL": "https://$ADDRESS:8790",
    "PATH": "/bin",
}


class Remembered:
    """What the launcher uses of an engine: one container at most."""

    def __init__(self) -> None:
        self.container: dict[str, Any] | None = None
        self.calls: list[str] = []

    def inspect_container(self, name: str) -> dict[str, Any]:
        if self.container is None:
            raise NotFound("no such container")
        return self.container

    def create_container_from_config(self, body: dict[str, Any], name: str) -> dict[str, str]:
        assert name == CONTAINER
        assert self.container is None
        labels = body["Labels"]
        self.container = {"Id": labels[MADE_FROM], "Config": {"Labels": labels}, "State": {}}
        self.calls.append("create")
        return {"Id": labels[MADE_FROM]}

    def start(self, container: str) -> None:
        assert self.container is not None
        self.container["State"]["Running"] = True
        self.calls.append("start")

    def stop(self, container: str, timeout: int) -> None:
        if self.container is None:
            raise NotFound("no such container")
        self.calls.append("stop")

    def remove_container(self, container: str, force: bool) -> None:
        self.container = None
        self.calls.append("remove")


def order(**more: str) -> dict[str, Any]:
    return wanted(json.loads(TARGET.read_text()), SETTINGS | more, "192.0.2.7")


def test_the_options_are_those_of_compose() -> None:
    """The file is generated; what Compose has and an engine would not get is an error."""
    assert TARGET.read_text() == text(), "run `python -m scripts.node_options`"
    service = yaml.safe_load(SOURCE.read_text())["services"]["control-plane"]
    with pytest.raises(ValueError, match="privileged"):
        options({**service, "privileged": True})


def test_the_container_has_the_settings_of_the_service_and_no_capability_of_its_own() -> None:
    body = order()
    assert body["Image"] == "sha256:1"
    assert "PADDOCK_NODE=a" in body["Env"]
    assert "TINI_SUBREAPER=1" in body["Env"]
    assert not any(each.startswith("PATH=") for each in body["Env"])
    host = body["HostConfig"]
    assert "/srv/state:/srv/state:rshared" in host["Binds"]
    assert "/run/engine.sock:/var/run/docker.sock" in host["Binds"]
    assert host["CapDrop"] == ["ALL"]
    assert "NET_ADMIN" not in host["CapAdd"]
    assert "$" not in json.dumps(body)


def test_a_control_plane_that_runs_with_the_same_options_is_taken_over() -> None:
    """After the launcher was killed, the next one does not restart what runs."""
    engine = Remembered()
    launcher = Launcher(engine)  # type: ignore[arg-type]
    first = launcher.start(order())
    assert launcher.start(order()) == first
    assert engine.calls == ["create", "start"]


@pytest.mark.parametrize(
    ("address", "url"),
    [("192.0.2.7", "https://192.0.2.7:8790"), ("2001:db8::7", "https://[2001:db8::7]:8790")],
)
def test_a_node_is_reached_where_the_swarm_reaches_its_machine(address: str, url: str) -> None:
    body = wanted(json.loads(TARGET.read_text()), SETTINGS, address)
    assert f"PADDOCK_NODE_URL={url}" in body["Env"]


@pytest.mark.parametrize("change", [{"LAUNCHER_IMAGE": "sha256:2"}, {"PADDOCK_NODE": "b"}])
def test_a_control_plane_with_other_options_is_replaced(change: dict[str, str]) -> None:
    engine = Remembered()
    launcher = Launcher(engine)  # type: ignore[arg-type]
    first = launcher.start(order())
    assert launcher.start(order(**change)) != first
    assert engine.calls == ["create", "start", "stop", "remove", "create", "start"]


def test_what_is_gone_already_is_stopped_without_an_error() -> None:
    engine = Remembered()
    Launcher(engine).stop("gone")  # type: ignore[arg-type]
    assert engine.calls == []


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    source, target = tmp_path / "run", tmp_path / "state" / "cluster"
    place_secrets(source, target)  # a service without secrets
    source.mkdir()
    for value in ("first", "second"):
        (source / "node.key").write_text(value)
        place_secrets(source, target)
        (placed,) = target.iterdir()
        assert placed.read_text() == value
        assert stat.S_IMODE(placed.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
