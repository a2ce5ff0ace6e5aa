"""Programs of the host run in a container's namespace, and never in the host's own."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.host.engine import docker_namespaces
from orchestrator.host.engine.docker_namespaces import ran_inside


def described(key: str | None) -> dict[str, Any]:
    return {"NetworkSettings": {"SandboxKey": key}}


def test_where_no_namespace_is_nothing_runs(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    # A file without a namespace is what the engine leaves of a container that has ended.
    left = tmp_path / "left"
    left.touch()
    for key in (None, "", str(tmp_path / "none"), str(left), "/proc/self/ns/net"):
        assert not ran_inside(described(key), f"touch {ran}"), key
        assert not ran.exists(), key
    assert not ran_inside({"NetworkSettings": {}}, f"touch {ran}")


def test_without_the_programs_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_namespaces, "_PATH", "/nowhere")
    assert not ran_inside(described("/proc/self/ns/uts"), "true")
