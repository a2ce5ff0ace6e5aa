"""The agent that every container has mounted: what is in it, and for how long it stays."""

import secrets
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import LABEL_PROTOCOL
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.sandbox.images import mounted_agents
from orchestrator.sandbox.images.mounted_agents import LABEL_AGENT, MountedAgents, read_code
from sandbox_agent.decide.mounted_agent import AGENT
from tests.support.arsenal import build_image, remove_image
from tests.support.box import TESTER, Box
from tests.support.leaks import engine_client
from tests.support.plane import clear, opened, running, state

# What an earlier version left in an image: an agent that does not work, and another first process.
EARLIER = f"""\
FROM {{base}}
LABEL {LABEL_PROTOCOL}=1
RUN mkdir -p /opt/paddock/sandbox_agent \\
    && echo 'raise SystemExit(9)' > /opt/paddock/sandbox_agent/__init__.py \\
    && echo 'read = 1' > /opt/paddock/baseline.toml
ENV LD_PRELOAD=/none.so
VOLUME /data
ENTRYPOINT ["/bin/false"]
"""


async def made(sandbox_image: str, state_dir: Path) -> Path:
    engine = DockerEngine(secrets.token_hex(4))
    try:
        return await MountedAgents(engine, state_dir, sandbox_image).directory()
    finally:
        await engine.close()


async def test_its_code_is_compiled_and_never_compared_with_its_source(
    sandbox_image: str, tmp_path: Path
) -> None:
    agent = await made(sandbox_image, tmp_path)
    sources = [agent / "__main__.py", *(agent / "sandbox_agent").rglob("*.py")]
    assert len(sources) > 100
    for source in sources:
        (compiled,) = (source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc")
        # The flags after the magic number say: hash-based, and not checked against the source.
        assert struct.unpack("<I", compiled.read_bytes()[4:8]) == (1,), source
        assert b"/opt/paddock/" in compiled.read_bytes()


async def test_nobody_but_root_may_write_it_and_everybody_may_read_it(
    sandbox_image: str, tmp_path: Path
) -> None:
    agent = await made(sandbox_image, tmp_path)
    for path in (agent, *agent.rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (0, 0), path
        assert status.st_mode & 0o7022 == 0, path
        assert status.st_mode & 0o444 == 0o444, path
        assert not path.is_symlink(), path


@pytest.mark.parametrize("level", ["low", "high"])
async def test_an_image_of_ours_has_it_mounted(sandbox_image: str, level: str) -> None:
    async with opened(image=sandbox_image) as plane:
        box = await Box.create(plane, level)
        (agent,) = (plane.settings.state_dir / "agents").iterdir()
        assert (await box.container()).labels[LABEL_AGENT] == agent.name
        assert box.agent().cmdline() == list(AGENT)
        # No library of the image is in its memory.
        maps = Path(f"/proc/{box.agent().pid}/maps").read_text().splitlines()
        files = {line.split(maxsplit=5)[5] for line in maps if "/" in line}
        assert all(file.startswith("/opt/paddock/") for file in files), files
        mounts = (Path("/proc") / str(box.agent().pid) / "mounts").read_text().splitlines()
        (options,) = (line.split()[3] for line in mounts if line.split()[1] == "/opt/paddock")
        assert "ro" in options.split(",")


async def test_a_shell_of_an_operator_reads_no_home_of_a_session(sandbox_image: str) -> None:
    """A workspace may be at `/root`, and the engine's shells in the container are root's."""
    async with opened(image=sandbox_image) as plane:
        box = await Box.create(plane, "high", workspace_path="/root")
        await box.write(".bashrc", b"echo canary\n")
        with closing(engine_client()) as client:
            words = ["bash", "-i", "-c", "echo $HOME"]
            shell = client.exec_create((await box.container()).id, words, tty=True)
            assert client.exec_start(shell["Id"], tty=True) == b"/\r\n"
        await box.close()


@pytest.fixture
def earlier(sandbox_image: str) -> Iterator[str]:
    image = build_image("earlier", EARLIER.format(base=sandbox_image))
    yield image
    remove_image(image)


async def test_an_image_of_an_earlier_version_works_with_the_mounted_agent(
    sandbox_image: str, earlier: str
) -> None:
    async with opened(image=sandbox_image, images=(earlier,)) as plane:
        box = await Box.create(plane, "high", image=earlier)
        assert (await box.run("echo works")).stdout == "works\n"
        assert (await box.run("session id")).stdout == f"{box.session.id}\n"
        assert "LD_PRELOAD" not in box.agent().environ()
        assert (await box.run(argv=["sh", "-c", "echo x > /data/x"])).exit_code != 0
        low = await Box.create(plane, "low", image=earlier)
        assert (await low.run("ls /workspace")).exit_code == 0


async def test_an_image_of_an_earlier_version_as_the_default(earlier: str) -> None:
    async with opened(image=earlier) as plane:
        box = await Box.create(plane, "high")
        assert (await box.run("echo works")).stdout == "works\n"


def names(plane: ControlPlane) -> set[str]:
    return {path.name for path in (plane.settings.state_dir / "agents").iterdir()}


async def test_a_live_sandbox_keeps_its_agent_after_an_upgrade(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory goes with it, and not before: modules are imported when they are needed."""
    with state(image=sandbox_image) as settings:
        current = read_code()
        older = {**current, "sandbox_agent/older.py": b"# an earlier version\n"}
        monkeypatch.setattr(mounted_agents, "read_code", lambda: older)
        async with running(settings) as plane:
            first, second = [await Box.create(plane, "high") for _ in range(2)]
            await first.write("file", b"kept\n")
            (before,) = names(plane)
        monkeypatch.setattr(mounted_agents, "read_code", lambda: current)
        async with running(settings) as plane:
            again, other = (
                Box(plane, plane.sessions.finder.find(TESTER, box.session.id))
                for box in (first, second)
            )
            assert (await again.run("cat file")).stdout == "kept\n"
            packed, _ = await again.pack()
            assert b"kept" in packed
            fresh = await Box.create(plane, "high")
            after = (await fresh.container()).labels[LABEL_AGENT]
            assert names(plane) == {before, after}
            await again.close()
            assert (await other.run("echo there")).stdout == "there\n"
            assert names(plane) == {before, after}
            await other.close()
            assert names(plane) == {after}
            assert (await fresh.run("echo new")).stdout == "new\n"
            await clear(plane)


async def test_a_default_image_without_python_is_refused(tmp_path: Path) -> None:
    client = docker.APIClient(version="auto")
    name = f"paddock-test-{secrets.token_hex(4)}"
    client.import_image_from_data(b"\0" * 10_240, repository=name)
    try:
        with pytest.raises(EngineUnavailableError, match="has no /usr/bin/python3"):
            await made(f"{name}:latest", tmp_path)
        assert list((tmp_path / "agents").iterdir()) == []
    finally:
        client.remove_image(f"{name}:latest", force=True)
        client.close()
