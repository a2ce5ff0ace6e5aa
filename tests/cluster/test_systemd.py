"""`deploy/systemd`: the gateway's unit is right, its command serves, and examples are settings."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession

from gateway.privileges import UID
from orchestrator.settings.settings import load_settings
from tests.support.box import PATIENCE
from tests.support.certificates import Authority
from tests.support.cluster_store import CLUSTER, make_schema
from tests.support.postgres import FreshDatabase

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "paddock-gateway.service"
PROGRAM = "/usr/bin/paddock"


def directives(name: str) -> list[str]:
    """The values of one directive of the unit."""
    lines = (line.partition("=") for line in UNIT.read_text().splitlines())
    return [value for key, _, value in lines if key == name]


def variables(name: str) -> dict[str, str]:
    """An example's variables."""
    lines = (FOLDER / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_unit_is_right(tmp_path: Path) -> None:
    """systemd warns of each directive that it does not know, or whose value is wrong."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)]
    done = subprocess.run(verify, capture_output=True, text=True)
    assert not [line for line in done.stderr.splitlines() if UNIT.name in line], done.stderr
    assert done.returncode == 0, done.stderr


def test_it_is_nobody_without_capabilities() -> None:
    assert directives("User") == directives("Group") == [str(UID)]
    assert directives("CapabilityBoundingSet") == [""]
    assert directives("NoNewPrivileges") == ["yes"]


async def test_its_command_serves_with_the_example(postgres: FreshDatabase, tmp_path: Path) -> None:
    """The files and the database are this test's; else it is the line and the file as they are."""
    await make_schema(postgres.dsn)
    authority = Authority(tmp_path)
    pair = authority.sign("gateway")
    example = variables("gateway")
    for name, here in {
        "PADDOCK_CLUSTER": CLUSTER,
        "PADDOCK_CLUSTER_DATABASE": postgres.dsn,
        "PADDOCK_GATEWAY_HOST": "127.0.0.1",
        "PADDOCK_GATEWAY_PORT": "0",
        "PADDOCK_GATEWAY_CERT": str(pair.cert),
        "PADDOCK_GATEWAY_KEY": str(pair.key),
        "PADDOCK_GATEWAY_CA": str(authority.file),
    }.items():
        assert name in example
        example[name] = here
    example.pop("PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE")  # it is in the URL here
    (command,) = directives("ExecStart")
    program, *words = command.split()
    assert program == PROGRAM
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", *words),
        env={"PATH": os.environ["PATH"], "PADDOCK_LOG_FORMAT": "console", **example},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE), ClientSession() as client:
            url = ""
            while not url and (line := (await process.stdout.readline()).decode()):
                if "serving the cluster's API at " in line:
                    url = line.strip().rpartition(" ")[2]
            async with client.get(f"{url}/healthz") as answer:
                assert answer.status == 200
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_the_example_makes_a_control_plane_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables("node").items():
        if value.startswith("/etc/paddock/"):
            path = tmp_path / Path(value).name
            path.write_text("5ea1" * 16)
            value = str(path)
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.cluster, settings.node) == ("main", "node-1")
    assert settings.cluster_secrets_key_file == tmp_path / "secrets.key"
