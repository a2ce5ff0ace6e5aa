"""What one machine says of itself, and that it needs nothing of a cluster."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.ground.config_error import ConfigError
from orchestrator.host.node.requirements import Facts
from orchestrator.rules.policy.levels import load_levels
from orchestrator.sessions.in_cluster.capacity import digest_of, enforceable
from orchestrator.settings.settings import load_settings
from sandbox_agent.decide.facilities import Kernel
from tests.api.conftest import OPERATOR_KEY, Api

NEEDED = {
    "PADDOCK_CLUSTER_DATABASE": "postgresql://paddock@db.internal/paddock",
    "PADDOCK_NODE": "node-1",
    "PADDOCK_NODE_URL": "https://node-1.internal:8790",
    "PADDOCK_NODE_LISTEN": "127.0.0.1:8790",
}
FILES = ("PADDOCK_NODE_CERT", "PADDOCK_NODE_KEY", "PADDOCK_NODE_CA")


async def test_a_machine_says_what_it_has_and_what_is_used(api: Api) -> None:
    before = await api.json("GET", "/api/node")
    assert before["capacity"]["sandboxes"] == api.plane.settings.max_active
    assert before["used"] == {"cpus": 0, "memory_bytes": 0, "sandboxes": 0}
    assert (before["epoch"], before["state"], before["url"]) == (0, "ready", "")
    assert set(before["levels"]) <= {"low", "medium", "high"}
    session = await api.session(permission_level="low", key=OPERATOR_KEY)
    used = await api.json("GET", "/api/node")
    limits = api.plane.levels["low"].limits
    assert used["used"]["sandboxes"] == 1
    assert used["used"]["memory_bytes"] == limits.memory_bytes
    assert used["used_by"] == {"operator": 1}
    await api.json("DELETE", f"/api/sessions/{session['id']}")
    assert (await api.json("GET", "/api/node"))["used"] == before["used"]


async def test_only_admins_see_it(api: Api) -> None:
    await api.problem(403, "permission_denied", "GET", "/api/node", key=OPERATOR_KEY)


def test_a_level_that_the_host_cannot_enforce_is_not_reported() -> None:
    levels = load_levels(None)
    nothing = Facts(Kernel(0, False, False, False), mounts=False, quota=False)
    assert enforceable(levels, nothing) == []


def test_equal_rules_have_equal_digests() -> None:
    levels = load_levels(None)
    assert digest_of(levels) == digest_of(dict(reversed(list(levels.items()))))
    changed = {**levels, "low": replace(levels["low"], sha256="0" * 64)}
    assert digest_of(changed) != digest_of(levels)


def test_one_machine_imports_nothing_of_a_cluster() -> None:
    """Not even the database's driver, which need not be installed."""
    program = (
        "import sys, api.server, orchestrator.control_plane\n"
        "found = [n for n in sys.modules if n.split('.')[0] in ('asyncpg', 'gateway')"
        " or n.startswith('orchestrator.cluster.postgres')]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


async def test_a_control_plane_alone_opens_nothing_of_a_cluster(api: Api) -> None:
    await api.session()
    assert api.plane.outbox.waiting == 0
    assert api.plane.outbox._task is None
    assert "paddock_outbox_messages 0.0" in await (await api.call("GET", "/metrics")).text()
    rows = await api.plane.database.read(
        lambda connection: connection.execute("SELECT count(*) FROM outbox").fetchone()
    )
    assert rows == (0,)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """That of a node, complete."""
    for name in list(os.environ):
        if name.startswith("PADDOCK_"):
            monkeypatch.delenv(name)
    for name, value in ({"PADDOCK_CLUSTER": "blue"} | NEEDED).items():
        monkeypatch.setenv(name, value)
    for name in FILES:
        file = tmp_path / name
        file.write_text("-----BEGIN CERTIFICATE-----\n")
        monkeypatch.setenv(name, str(file))
    return monkeypatch


def test_the_settings_of_a_node(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PADDOCK_NODE_LABELS", '{"zone": "a"}')
    settings = load_settings()
    assert (settings.cluster, settings.node) == ("blue", "node-1")
    assert settings.node_labels == {"zone": "a"}


@pytest.mark.parametrize("name", [*NEEDED, *FILES])
def test_a_node_has_all_of_its_settings(environment: pytest.MonkeyPatch, name: str) -> None:
    environment.delenv(name)
    with pytest.raises(ConfigError, match=rf"^{name}: must be set, because PADDOCK_CLUSTER is: "):
        load_settings()


@pytest.mark.parametrize("name", [*NEEDED, *FILES])
def test_without_a_cluster_there_is_none_of_them(
    environment: pytest.MonkeyPatch, name: str
) -> None:
    for other in ("PADDOCK_CLUSTER", *NEEDED, *FILES):
        if other != name:
            environment.delenv(other)
    with pytest.raises(ConfigError, match=rf"^{name}: is for nodes of a cluster: set PADDOCK_CLU"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PADDOCK_CLUSTER", "Blue", "small letters"),
        ("PADDOCK_CLUSTER_DATABASE", "mysql://host/db", "must look like postgresql://"),
        ("PADDOCK_CLUSTER_DATABASE", "postgresql://u:s3cret@host:x/db", "must look like"),
        ("PADDOCK_CLUSTER_DATABASE", "postgresql://host", "must look like"),
        ("PADDOCK_NODE", "-", "small letters"),
        ("PADDOCK_NODE_URL", "http://node-1:8790", "must begin with https://"),
        ("PADDOCK_NODE_LISTEN", "8790", "must be host:port"),
        ("PADDOCK_NODE_LABELS", "[1]", "valid dictionary"),
        ("PADDOCK_NODE_CERT", "/nowhere/cert.pem", "no such file"),
    ],
)
def test_a_wrong_value_is_named(
    environment: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    environment.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"^{name}.*: .*{why}") as caught:
        load_settings()
    assert "s3cret" not in str(caught.value)


def test_a_password_is_in_one_place(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    environment.setenv("PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE", str(tmp_path / "password"))
    assert load_settings().cluster_database_password_file
    environment.setenv("PADDOCK_CLUSTER_DATABASE", "postgresql://u:pw@db/paddock")
    with pytest.raises(ConfigError, match=r"^PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE: .*remove one"):
        load_settings()
