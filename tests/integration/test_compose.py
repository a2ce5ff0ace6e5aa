"""The control plane under compose.yaml: started, killed, restarted, stopped."""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest
import requests
from pytest_docker.plugin import DockerComposeExecutor, Services, get_docker_services

from images.builder import build
from images.recipes import CONTROL_PLANE, ROOT, SANDBOX, context_files
from orchestrator.host.workspace import mounts
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.mounted_agent import AGENT
from tests.support.free_ports import free_port
from tests.support.leaks import (
    NO_WORKSPACES,
    NOTHING,
    containers,
    left_behind,
    networks,
    workspaces_left,
)
from tests.support.limits import PROGRAM_SECONDS

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"
COMMAND = f"{ROOT}/scripts/compose.sh"
FILE = f"{ROOT}/compose.yaml"
PAYLOAD = b"#!/bin/sh\necho ran\n"
LEVELS = ("low", "medium", "high")
# Settings that compose.yaml sets itself, and paths that would lie outside the state directory.
NOT_PASSED_ON = {
    *("state_dir", "listen", "preview_listen", "published_url", "docker_host"),
    *("workspaces_dir", "archive_dir"),
}


class Deployment:
    """A running compose project, its engine, and a client of its API with the admin key."""

    def __init__(self, engine: docker.APIClient, project: str, state_dir: Path, port: int) -> None:
        self.engine = engine
        self.state_dir = state_dir
        self.url = f"http://127.0.0.1:{port}"
        labels = [f"{PROJECT}={project}", f"{SERVICE}=control-plane"]
        (container,) = engine.containers(all=True, filters={"label": labels})
        self.container = str(container["Id"])

    def is_ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/readyz", timeout=PROGRAM_SECONDS).ok
        except requests.ConnectionError:
            return False

    def call(self, method: str, path: str, **more: Any) -> Any:
        """The JSON answer of a request that must succeed."""
        with self._request(method, path, **more) as answer:
            return answer.json() if answer.content else None

    def follow(self, process: str) -> str:
        """All events of a command until its end, as text."""
        accept = {"Accept": "text/event-stream"}
        with self._request("GET", process, headers=accept, stream=True) as answer:
            said = ""
            for line in answer.iter_lines(decode_unicode=True):
                said += f"{line}\n"
                if line == "event: exit":
                    return said
        raise AssertionError(f"no exit: {said}")

    def _request(
        self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any
    ) -> requests.Response:
        key = (self.state_dir / "admin.key").read_text().strip()
        answer = requests.request(
            method,
            f"{self.url}/api/sessions{path}",
            headers={"Authorization": f"Bearer {key}", **(headers or {})},
            timeout=PROGRAM_SECONDS,
            **more,
        )
        assert answer.ok, (method, path, answer.status_code, answer.text)
        return answer

    def run(self, session: str, argv: list[str], **more: Any) -> Any:
        """The result of a command."""
        return self.call("POST", f"/{session}/exec", json={"argv": argv, **more})

    def inside(self, container: str, argv: list[str], user: str = "0") -> tuple[int, str]:
        """Exit status and output of a program that the engine starts in a container."""
        made = self.engine.exec_create(container, argv, user=user)["Id"]
        output = self.engine.exec_start(made).decode()
        return self.engine.exec_inspect(made)["ExitCode"], output


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    for recipe in (SANDBOX, CONTROL_PLANE):
        build(recipe=recipe, report=lambda _line: None)


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.APIClient]:
    with closing(docker.APIClient(version="auto", timeout=PROGRAM_SECONDS)) as client:
        yield client


@contextmanager
def prepared(shared: bool) -> Iterator[tuple[str, Path, int]]:
    """The environment of a compose project: its name, state directory and port."""
    project = f"paddock-test-{secrets.token_hex(4)}"
    with (
        tempfile.TemporaryDirectory(prefix="paddock-") as directory,
        pytest.MonkeyPatch.context() as patch,
        ExitStack() as stack,
    ):
        port, previews = free_port(), free_port()
        for name in [name for name in os.environ if name.startswith("PADDOCK_")]:
            patch.delenv(name)
        state_dir = Path(directory) / "state"
        state_dir.mkdir(mode=0o700)
        patch.setenv("PADDOCK_STATE_DIR", str(state_dir))
        patch.setenv("PADDOCK_PORT", str(port))
        patch.setenv("PADDOCK_PREVIEW_PORT", str(previews))
        patch.setenv("PADDOCK_UID_BASE", str(1_900_000_000 + secrets.randbelow(1000) * 65_536))
        patch.setenv("PADDOCK_MIN_FREE_MEMORY_BYTES", "0")
        if shared:
            stack.callback(shared_state, "undo")
            shared_state("make")
        else:
            stack.callback(mounts.unmount, str(state_dir))
            subprocess.run(["mount", "--bind", state_dir, state_dir], check=True)
            subprocess.run(["mount", "--make-private", state_dir], check=True)
        yield project, state_dir, port
        assert mounts.mounts_under(str(state_dir)) == []
    assert mounts.mounts_under(directory) == []


def shared_state(command: str) -> None:
    subprocess.run([ROOT / "scripts/shared-state.sh", command], check=True, timeout=PROGRAM_SECONDS)


@pytest.fixture(scope="module")
def deployment(engine: docker.APIClient) -> Iterator[Deployment]:
    """A deployment; taking it down must leave nothing."""
    with prepared(shared=True) as (project, state_dir, port), ExitStack() as stack:
        stack.callback(free, engine, state_dir)
        setup, cleanup = ["up -d"], ["logs --no-color", "down -v"]
        with get_docker_services(COMMAND, FILE, project, setup, cleanup) as services:
            deployment = Deployment(engine, project, state_dir, port)
            wait_for(services, deployment)
            yield deployment
            for session in deployment.call("GET", "")["items"]:
                deployment.call("DELETE", f"/{session['id']}?purge=true")
            assert left_behind(state_dir) == NOTHING
            assert workspaces_left(state_dir) == NO_WORKSPACES
        assert left_behind(state_dir) == NOTHING
        assert networks(state_dir) == []
        filters = {"label": [f"{PROJECT}={project}"]}
        assert engine.containers(all=True, filters=filters) == []
        assert engine.networks(filters=filters) == []


def free(engine: docker.APIClient, state_dir: Path) -> None:
    """Leaves the host clean even when a test has failed."""
    if (state_dir / "instance").exists():
        for name in containers(state_dir):
            engine.remove_container(name, force=True)
    for point in mounts.mounts_under(str(state_dir)):
        mounts.unmount(point)


def wait_for(services: Services, deployment: Deployment) -> None:
    services.wait_until_responsive(deployment.is_ready, timeout=PROGRAM_SECONDS, pause=0.1)


@pytest.fixture(scope="module")
def sessions(deployment: Deployment) -> dict[str, str]:
    """A session of each level."""
    return {
        level: deployment.call("POST", "", json={"permission_level": level})["id"]
        for level in LEVELS
    }


def payload_runs(deployment: Deployment, session: str) -> bool:
    """Whether the kernel runs a program from the workspace, whatever Paddock's rules say."""
    workspace = deployment.state_dir / "session-workspaces" / session
    container = f"paddock-{deployment.call('GET', f'/{session}')['sandbox']['id']}"
    # The engine may lose what a program prints, so it is kept in a file.
    script = "cd /workspace; chmod 700 payload; ./payload > said 2>&1; echo $? >> said"
    user = str(workspace.stat().st_uid)
    deployment.inside(container, ["/bin/sh", "-c", script], user)
    said = (workspace / "said").read_text()
    (workspace / "said").unlink()
    assert said == "ran\n0\n" or (said.endswith("\n126\n") and "Permission denied" in said), said
    return said == "ran\n0\n"


@pytest.mark.parametrize("level", LEVELS)
def test_sessions_of_every_level_work(
    deployment: Deployment, sessions: dict[str, str], level: str
) -> None:
    session = sessions[level]
    path = f"/{session}/files?path=payload"
    deployment.call("PUT", path, data=PAYLOAD)
    assert deployment.run(session, ["ls"])["stdout"] == "payload\n"
    assert deployment.run(session, ["cat", "payload"])["stdout"] == PAYLOAD.decode()
    # The mount made in the control plane's container takes effect in the sandbox.
    assert payload_runs(deployment, session) is (level == "high")
    # The session's own file system is made in the container and visible on the host.
    disk = deployment.call("GET", f"/{session}")["disk"]
    assert 0 < disk["used_bytes"] < disk["limit_bytes"]
    workspace = deployment.state_dir / "session-workspaces" / session
    assert (workspace / "payload").read_bytes() == PAYLOAD
    assert os.lstat(workspace.resolve()).st_dev != deployment.state_dir.stat().st_dev


def test_commands_find_it_from_the_host_and_from_inside(
    deployment: Deployment, sessions: dict[str, str]
) -> None:
    """The port is published under another number, and the key must not go to the default one."""
    assert (deployment.state_dir / "url").read_text().strip() == deployment.url
    command = ["paddock", "sessions", "list", "--json"]
    environment = {
        "PATH": os.environ["PATH"],
        "PADDOCK_STATE_DIR": str(deployment.state_dir),
    }
    on_host = subprocess.run(
        [sys.executable, "-m", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
    )
    assert on_host.returncode == 0, on_host.stderr
    status, inside = deployment.inside(deployment.container, command)
    assert status == 0, inside
    for said in (on_host.stdout, inside):
        assert all(session in said for session in sessions.values())


def test_a_level_change_resizes_there_too(deployment: Deployment) -> None:
    session = deployment.call("POST", "", json={"permission_level": "medium"})["id"]
    deployment.call("PUT", f"/{session}/files?path=payload", data=PAYLOAD)
    sizes = {}
    for level in ("low", "high", "low"):
        body = {"settings": {"permission_level": level}}
        deployment.call("PUT", f"/{session}/settings", json=body)
        sizes[level] = deployment.call("GET", f"/{session}")["disk"]["limit_bytes"]
        assert deployment.run(session, ["cat", "payload"])["stdout"] == PAYLOAD.decode()
    assert sizes["low"] < 2**28 < sizes["high"]


def test_what_is_staged_reaches_the_workspace_by_a_commit(deployment: Deployment) -> None:
    body = {"permission_level": "low", "policy": "SAFE_EDIT"}
    session = deployment.call("POST", "", json=body)["id"]
    workspace = deployment.state_dir / "session-workspaces" / session
    write = {"operation": "world.write", "args": {"ref": "src/a.py", "text": "x = 1\n"}}
    turn = deployment.call("POST", f"/{session}/turns", json={"operations": [write]})
    assert turn["outcome"]["tag"] == "proposed", turn
    assert deployment.run(session, ["cat", "src/a.py"])["stdout"] == "x = 1\n"
    assert list(workspace.iterdir()) == []
    deployment.call("POST", f"/{session}/proposals/commit", json={})
    assert (workspace / "src" / "a.py").read_bytes() == b"x = 1\n"
    deployment.call("DELETE", f"/{session}?purge=true")


def test_the_open_network_is_made_from_inside(
    deployment: Deployment, sessions: dict[str, str]
) -> None:
    script = "import socket; print([name for _, name in socket.if_nameindex()])"
    result = deployment.run(sessions["high"], ["python3", "-c", script])
    assert "eth0" in result["stdout"]
    # From inside, links can't be made.
    assert deployment.call("GET", f"/{sessions['high']}")["own_link"] is False
    assert len(networks(deployment.state_dir)) == 1


def test_the_host_is_seen_from_inside(deployment: Deployment, sessions: dict[str, str]) -> None:
    script = "import psutil; print(psutil.virtual_memory().total, psutil.cpu_count())"
    status, output = deployment.inside(deployment.container, ["python3", "-c", script])
    assert status == 0
    assert output.split() == [str(psutil.virtual_memory().total), str(psutil.cpu_count())]
    shown = deployment.call("GET", f"/{sessions['low']}")
    assert shown["processes"][0]["argv"] == list(AGENT)
    assert shown["usage"]["memory_bytes"] > 0


def test_everything_that_is_no_code_is_installed(deployment: Deployment) -> None:
    data = [
        name
        for name in context_files(recipe=CONTROL_PLANE)
        if name.startswith(("paddock/", "api/", "orchestrator/", "sandbox_agent/"))
        and not name.endswith(".py")
    ]
    assert data
    script = "cd /usr/local/lib/python3.*/dist-packages && ls"
    status, output = deployment.inside(
        deployment.container, ["/bin/sh", "-c", f"{script} {' '.join(data)}"]
    )
    assert status == 0, output


def test_sessions_survive_the_control_plane(
    deployment: Deployment, sessions: dict[str, str]
) -> None:
    high = sessions["high"]
    script = "read line && echo got $line"
    command = deployment.run(
        high, ["bash", "-c", script], background=True, stdin_open=True, timeout=PROGRAM_SECONDS
    )["command_id"]

    engine = deployment.engine
    engine.kill(deployment.container)
    assert engine.wait(deployment.container)["StatusCode"] == 137
    engine.start(deployment.container)
    wait_for(Services(None), deployment)

    process = f"/{high}/processes/{command}"
    deployment.call("POST", f"{process}/stdin", json={"data": "this\n", "close": True})
    assert "got this" in deployment.follow(process)
    for level, session in sessions.items():
        assert deployment.run(session, ["ls"])["stdout"] == "payload\n"
        assert payload_runs(deployment, session) is (level == "high")
        assert deployment.call("GET", f"/{session}/audit/verify")["ok"]
    # The second container resizes file systems that the first one has mounted.
    for level in ("medium", "low"):
        body = {"settings": {"permission_level": level}}
        deployment.call("PUT", f"/{sessions['low']}/settings", json=body)
        assert deployment.run(sessions["low"], ["ls"])["stdout"] == "payload\n"
    # It can still mount, and its mounts still reach the host.
    later = deployment.call("POST", "", json={"permission_level": "low"})["id"]
    deployment.call("PUT", f"/{later}/files?path=payload", data=PAYLOAD)
    assert not payload_runs(deployment, later)


def test_a_host_without_a_shared_state_directory_is_told() -> None:
    with prepared(shared=False) as (project, state_dir, _):
        compose = DockerComposeExecutor(COMMAND, FILE, project)
        try:
            said = compose.execute("run --rm host-check", success_codes=[1]).decode()
        finally:
            compose.execute("down -v")
    assert f"{state_dir} is not on a shared mount" in said
    assert "scripts/shared-state.sh" in said


def test_every_setting_is_passed_on() -> None:
    text = Path(FILE).read_text()
    missing = [
        name
        for name in Settings.model_fields
        if name not in NOT_PASSED_ON and f"  PADDOCK_{name.upper()}:\n" not in text
    ]
    assert missing == []
