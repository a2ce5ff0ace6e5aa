"""Registering a runtime with the engine: what becomes of the engine's own file."""

import json
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from scripts import engine_runtime
from scripts.engine_runtime import RuntimeSetupError, register, registered, write

OWN = {"log-driver": "local", "runtimes": {"kata": {"path": "/opt/kata", "runtimeArgs": ["-x"]}}}


def test_everything_else_stays() -> None:
    assert json.loads(registered("", "crun", "/usr/bin/crun") or "") == {
        "runtimes": {"crun": {"path": "/usr/bin/crun"}}
    }
    text = registered(json.dumps(OWN), "crun", "/usr/bin/crun") or ""
    made = json.loads(text)
    assert made["runtimes"].pop("crun") == {"path": "/usr/bin/crun"}
    assert made == OWN
    assert registered(text, "crun", "/another") is None  # it stays as it was registered


@pytest.mark.parametrize("text", ["{", "[]", '{"runtimes": []}'])
def test_a_file_that_is_not_understood_is_left_alone(text: str) -> None:
    with pytest.raises(RuntimeSetupError, match=r"daemon\.json"):
        registered(text, "crun", "/usr/bin/crun")


def test_its_mode_stays(tmp_path: Path) -> None:
    file = tmp_path / "docker" / "daemon.json"
    write(file, "{}")
    assert file.stat().st_mode & 0o777 == 0o644
    file.chmod(0o600)
    write(file, '{"a": 1}')
    assert (file.stat().st_mode & 0o777, file.read_text()) == (0o600, '{"a": 1}')
    assert os.listdir(file.parent) == ["daemon.json"]


class Client:
    """An engine that reads its file when it is asked to."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.runtimes: dict[str, Any] = {"runc": {}}
        self.signals: list[tuple[int, int]] = []
        self.listens = False

    def events(self, **_options: Any) -> "Client":
        self.listens = True
        return self

    def __next__(self) -> dict[str, Any]:
        self.runtimes |= json.loads(self.file.read_text())["runtimes"]
        return {}

    def close(self) -> None:
        self.listens = False

    def info(self) -> dict[str, Any]:
        return {"Runtimes": self.runtimes}

    def kill(self, pid: int, number: int) -> None:
        assert self.listens
        self.signals.append((pid, number))


def test_the_running_engine_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, pid = tmp_path / "daemon.json", tmp_path / "docker.pid"
    file.write_text(json.dumps(OWN))
    pid.write_text("4711\n")
    client = Client(file)
    monkeypatch.setattr(engine_runtime, "CONFIGURATION", file)
    monkeypatch.setattr(engine_runtime, "PID_FILE", pid)
    monkeypatch.setattr(os, "kill", client.kill)
    register(cast(Any, client), "crun", "/usr/bin/crun")
    assert client.signals == [(4711, signal.SIGHUP)]
    assert set(client.runtimes) == {"runc", "kata", "crun"}
    assert not client.listens
